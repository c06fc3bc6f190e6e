#include "inject.h"

#include <time.h>

#include "histogram.h"

// A sleeping thread wakes up late, by some 20 us in a virtual machine with the timer slack
// of 1 ns that Mount() sets. So it sleeps until this time before the end, then spins.
static constexpr uint64_t kWakeupNs = 60000;

void Wait(uint64_t ns, bool spin) {
  const uint64_t end = MonotonicNs() + ns;
  if (!spin && ns > kWakeupNs) {
    const uint64_t wakeup = end - kWakeupNs;
    const struct timespec until = {static_cast<time_t>(wakeup / 1000000000),
                                   static_cast<long>(wakeup % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) continue;
  }
  while (MonotonicNs() < end) continue;
}

void Injection::Delays(bool after, std::atomic<uint64_t> *begin,
                       std::atomic<uint64_t> *end) {
  for (Delay &delay : delays) {
    if (delay.after != after || !delay.share.Due()) continue;
    const uint64_t start = MonotonicNs();
    if (*begin == 0) *begin = start;
    Wait(delay.ns, delay.spin);
    const uint64_t stop = MonotonicNs();
    delay_ns += stop - start;
    *end = stop;
  }
}

int Injection::Fail() {
  int code = 0;
  for (Error &error : errors) {
    if (error.share.Due() && code == 0) code = error.code;
  }
  return code;
}
