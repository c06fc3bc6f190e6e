/** Latency histograms of the callbacks, in the CernVM-FS client's format. */
#ifndef SAMPLES_FS_HISTOGRAM_H_
#define SAMPLES_FS_HISTOGRAM_H_

#include <stdint.h>
#include <time.h>

#include <atomic>
#include <string>

inline uint64_t MonotonicNs() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

/**
 * Counts durations in ns in 30 bins, [0, 2), [2, 4), [4, 8) … [2^29, 2^30), and an
 * overflow. Adding is lock-free and never loses a call.
 */
class Log2Histogram {
 public:
  static constexpr int kBins = 30;

  void Add(uint64_t ns);
  uint64_t sum_ns() const { return sum_ns_; }
  std::string ToString() const;

 private:
  std::atomic<uint64_t> bins_[kBins + 1] = {};  // the last one is the overflow
  std::atomic<uint64_t> sum_ns_{0};
};

#endif  // SAMPLES_FS_HISTOGRAM_H_
