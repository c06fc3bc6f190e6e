/** Single calls of the callbacks, with their times by the daemon's own clock. */
#ifndef SAMPLES_FS_CALLS_H_
#define SAMPLES_FS_CALLS_H_

#include <stdint.h>

#include <atomic>
#include <string>

#include "loader.h"

/**
 * One call. Times are in ns on CLOCK_MONOTONIC, 0 if not (yet) reached. Filling it makes
 * no system calls, so that callbacks make the same ones as without it.
 */
struct Call {
  std::atomic<uint64_t> operation, unique;
  std::atomic<uint64_t> entered;                  // the callback's first line
  std::atomic<uint64_t> delay_begin, delay_end;  // due delays of --delay before the reply
  std::atomic<uint64_t> after_begin, after_end;  // due delays after the reply
  std::atomic<uint64_t> left;                     // the callback's last line
};

/** The last calls in the order of their entry. Adding one is lock-free. */
class CallLog {
 public:
  static constexpr uint64_t kCalls = 1 << 16;

  /** Returns a new row, valid until kCalls calls later. unique: the request's number. */
  Call *Enter(loader::Operation operation, uint64_t unique);
  /** Returns a heading and a line for each call, with columns separated by blanks. */
  std::string ToString() const;

 private:
  std::atomic<uint64_t> entered_{0};
  Call calls_[kCalls] = {};
};

#endif  // SAMPLES_FS_CALLS_H_
