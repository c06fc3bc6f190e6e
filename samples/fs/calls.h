/** The callbacks' calls one by one, each with its times by the daemon's own clock. */
#ifndef SAMPLES_FS_CALLS_H_
#define SAMPLES_FS_CALLS_H_

#include <stdint.h>

#include <atomic>
#include <string>

#include "loader.h"

/**
 * One call; times in ns on CLOCK_MONOTONIC, 0: not (yet). Nothing that takes a system call
 * to find out: a callback makes none that it would not make without this.
 */
struct Call {
  std::atomic<uint64_t> operation, unique;
  std::atomic<uint64_t> entered;                  // the callback's first line
  std::atomic<uint64_t> delay_begin, delay_end;  // --delay, all that were due
  std::atomic<uint64_t> after_begin, after_end;  // those of them after the reply
  std::atomic<uint64_t> left;                     // the callback's last line
};

/** The last calls, in the order in which they were entered; adding one is lock-free. */
class CallLog {
 public:
  static constexpr uint64_t kCalls = 1 << 16;

  /** unique: the request's number. The row is the caller's own until kCalls calls later. */
  Call *Enter(loader::Operation operation, uint64_t unique);
  /** A heading and a line for each call, columns separated by blanks. */
  std::string ToString() const;

 private:
  std::atomic<uint64_t> entered_{0};
  Call calls_[kCalls] = {};
};

#endif  // SAMPLES_FS_CALLS_H_
