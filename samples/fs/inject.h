/** The delays, errors and downloads of --delay, --error and --download. */
#ifndef SAMPLES_FS_INJECT_H_
#define SAMPLES_FS_INJECT_H_

#include <stdint.h>

#include <atomic>
#include <deque>

/**
 * A share of an operation's calls, selected by counting: exactly floor(N * share) of N
 * calls are due, evenly spread, on any threads.
 */
class Share {
 public:
  static constexpr uint64_t kAll = 1000000;
  explicit Share(uint64_t parts_per_million) : ppm_(parts_per_million) {}
  bool Due() {
    const uint64_t n = calls_++;
    const bool due = (n + 1) * ppm_ / kAll > n * ppm_ / kAll;
    if (due) ++due_;
    return due;
  }
  uint64_t due() const { return due_; }

 private:
  const uint64_t ppm_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> due_{0};
};

struct Delay {
  Delay(uint64_t ns, bool spin, bool after, uint64_t ppm)
      : ns(ns), spin(spin), after(after), share(ppm) {}
  const uint64_t ns;
  const bool spin;   // use the CPU instead of sleeping
  const bool after;  // after the reply
  Share share;
};

struct Error {
  Error(int code, uint64_t ppm) : code(code), share(ppm) {}
  const int code;
  Share share;
};

struct Download {
  Download(int port, uint64_t ppm) : port(port), share(ppm) {}
  const int port;  // on 127.0.0.1
  Share share;
};

struct Injection {
  std::deque<Delay> delays;           // the due ones add up
  std::deque<Error> errors;           // the first due one applies
  std::deque<Download> downloads;     // the due ones run one after the other
  std::atomic<uint64_t> delay_ns{0};  // measured sum of delays
  std::atomic<uint64_t> download_ns{0};

  /**
   * Waits for this call's due delays before its reply, or after it. Sets their begin and
   * end, unless there are none.
   */
  void Delays(bool after, std::atomic<uint64_t> *begin, std::atomic<uint64_t> *end);
  /** Returns the errno with which this call must fail, or 0. */
  int Fail();
};

/** Waits for ns nanoseconds, exact to about a microsecond on an idle CPU. */
void Wait(uint64_t ns, bool spin);

#endif  // SAMPLES_FS_INJECT_H_
