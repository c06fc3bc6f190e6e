#include "calls.h"

#include <algorithm>

#include "histogram.h"

Call *CallLog::Enter(loader::Operation operation, uint64_t unique) {
  Call *call = &calls_[entered_++ % kCalls];
  call->operation = operation;
  call->unique = unique;
  for (auto *time : {&call->delay_begin, &call->delay_end, &call->after_begin,
                     &call->after_end, &call->left})
    *time = 0;
  call->entered = MonotonicNs();
  return call;
}

std::string CallLog::ToString() const {
  std::string text =
      "operation unique entered delay_begin delay_end after_begin after_end left\n";
  const uint64_t end = entered_;
  for (uint64_t i = end - std::min(end, kCalls); i < end; ++i) {
    const Call &call = calls_[i % kCalls];
    text += loader::kOperationNames[call.operation].callback;
    for (const auto *field :
         {&call.unique, &call.entered, &call.delay_begin, &call.delay_end,
          &call.after_begin, &call.after_end, &call.left})
      text += " " + std::to_string(*field);
    text += "\n";
  }
  return text;
}
