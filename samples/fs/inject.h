/** The delays, errors and downloads that --delay, --error and --download ask for. */
#ifndef SAMPLES_FS_INJECT_H_
#define SAMPLES_FS_INJECT_H_

#include <stdint.h>

#include <atomic>
#include <deque>

/**
 * A share of an operation's calls, picked by counting: of N calls exactly
 * floor(N * share) are due, evenly spread, whichever threads make them.
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
  const bool spin;   // burn CPU instead of sleeping
  const bool after;  // when the call has been replied to
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
  std::deque<Delay> delays;           // all that are due add up
  std::deque<Error> errors;           // the first that is due wins
  std::deque<Download> downloads;     // all that are due, one after the other
  std::atomic<uint64_t> delay_ns{0};  // waited so far, as measured
  std::atomic<uint64_t> download_ns{0};

  /**
   * Waits as long as this call is meant to before its reply, or after it; sets from when
   * to when, if it is.
   */
  void Delays(bool after, std::atomic<uint64_t> *begin, std::atomic<uint64_t> *end);
  /** The errno that this call is meant to fail with, or 0. */
  int Fail();
};

/** Waits for ns nanoseconds, exact to about a microsecond on an idle CPU. */
void Wait(uint64_t ns, bool spin);

#endif  // SAMPLES_FS_INJECT_H_
