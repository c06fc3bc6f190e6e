#include "histogram.h"

#include <stdarg.h>
#include <stdio.h>

#include <algorithm>

namespace {

__attribute__((format(printf, 2, 3))) void Append(std::string *to, const char *format,
                                                  ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  *to += line;
}

uint64_t LowerBound(int bin) { return bin == 0 ? 0 : uint64_t{1} << bin; }

}  // anonymous namespace

void Log2Histogram::Add(uint64_t ns) {
  const int log2 = ns < 2 ? 0 : 63 - __builtin_clzll(ns);
  ++bins_[std::min(log2, kBins)];
  sum_ns_ += ns;
}

std::string Log2Histogram::ToString() const {
  uint64_t bins[kBins + 1];
  uint64_t total = 0;
  uint64_t highest = 0;
  for (int i = 0; i <= kBins; ++i) {
    bins[i] = bins_[i];
    total += bins[i];
    highest = std::max(highest, bins[i]);
  }

  // The client's layout: the highest bin sets the width, a full bar has 38 stars.
  const auto stars = [total](uint64_t count) {
    return total == 0 ? 0 : static_cast<int>(count * 38 / total);
  };
  const int count_width = 4 + std::to_string(highest).size();
  const int bar_width = std::max(12, stars(highest));
  std::string text;
  Append(&text, " %23s | %*s | %*s |\n", "nsec", count_width, "count", bar_width,
         "distribution");
  for (int i = 0; i < kBins; ++i) {
    Append(&text, "%10llu -> %10llu : %*llu | %*s |\n",
           static_cast<unsigned long long>(LowerBound(i)),
           static_cast<unsigned long long>(LowerBound(i + 1) - 1), count_width,
           static_cast<unsigned long long>(bins[i]), bar_width,
           std::string(stars(bins[i]), '*').c_str());
  }
  Append(&text, "%24s : %*llu | %*s |\n", "overflow", count_width,
         static_cast<unsigned long long>(bins[kBins]), bar_width,
         std::string(stars(bins[kBins]), '*').c_str());
  Append(&text, "%24s : %*llu\n", "total", count_width,
         static_cast<unsigned long long>(total));

  // A quantile is linear inside the bin of its rank.
  constexpr int kQuantiles[] = {100, 200, 250, 300, 400, 500, 600, 700,
                                750, 800, 900, 950, 990, 995, 999};
  std::string names;
  std::string values;
  for (const int quantile : kQuantiles) {
    const uint64_t rank = total * quantile / 1000;
    uint64_t below = 0;
    int bin = 0;
    while (bin < kBins && below + bins[bin] < rank) below += bins[bin++];
    uint64_t value = LowerBound(bin);
    if (bin < kBins && bins[bin] > 0) {
      const double part = static_cast<double>(rank - below) / bins[bin];
      value += static_cast<uint64_t>(part * (LowerBound(bin + 1) - value));
    }
    Append(&names, "%s0.%03d0", names.empty() ? "" : ",", quantile);
    Append(&values, "%s%llu", values.empty() ? "" : ",",
           static_cast<unsigned long long>(value));
  }
  return text + "\n\nQuantiles\n" + names + "\n" + values +
         "\nEnd Quantiles\n-----------------------\n";
}
