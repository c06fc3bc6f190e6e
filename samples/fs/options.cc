#include "options.h"

#include <string.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace loader {

const char kUsage[] =
    "Usage: samplefs [options] DIRECTORY MOUNTPOINT\n"
    "       samplefs --talk SOCKET internal affairs|calls\n"
    "\n"
    "Serves DIRECTORY read-only at MOUNTPOINT, built like the CernVM-FS client.\n"
    "\n"
    "  --delay OPERATION=TIME[:SHARE%][:spin][:after]\n"
    "                          every call of the operation, or that share of its calls, "
    "takes\n"
    "                          TIME (ns, us, ms, s) longer: asleep, or spinning on the "
    "CPU;\n"
    "                          before it replies, or after\n"
    "  --error OPERATION=ERRNO[:SHARE%]\n"
    "                          every call, or that share, fails with ERRNO (EIO, ENOENT "
    "…)\n"
    "  --download OPERATION=PORT[:SHARE%]\n"
    "                          every call, or that share, waits until the download thread "
    "has\n"
    "                          got a file by HTTP/1.0 from PORT of 127.0.0.1 (server.py); "
    "it\n"
    "                          fails with EIO where it does not\n"
    "  --kernel-cache SECONDS  how long the kernel may keep entries and attributes, and\n"
    "                          whether it keeps file contents between opens; 0: not at "
    "all\n"
    "                          (default: 60)\n"
    "  --threads N             callbacks at work at the same time, at most (default: 10)\n"
    "  --socket PATH           answer --talk on this socket: `internal affairs` prints "
    "counts\n"
    "                          and latencies; `calls` the times of each of the last "
    "65536 calls\n"
    "  -o OPTION[,OPTION…]     further mount options, such as default_permissions\n"
    "  -f, --foreground        stay in the foreground\n"
    "  -h, --help              this text\n"
    "\n"
    "Operations: lookup forget forget_multi getattr readlink opendir releasedir readdir "
    "open\n"
    "read release statfs getxattr listxattr. --delay, --error and --download may be "
    "given\n"
    "several times.\n"
    "A share is counted, not drawn: of N calls exactly floor(N * SHARE / 100) are due.\n"
    "Unmount with fusermount3 -u MOUNTPOINT or SIGTERM.\n";

/** Returns a number >= 0, and the text after it. UsageError: there is no number. */
static double ParseNumber(const std::string &text, const std::string &where,
                          std::string *rest) {
  const size_t end = text.find_first_not_of("0123456789.");
  char *parsed_end;
  const double number = strtod(text.c_str(), &parsed_end);
  const std::string digits = text.substr(0, end);
  if (digits.empty() || parsed_end < text.c_str() + digits.size())
    throw UsageError(where + ": '" + text + "' does not begin with a number");
  *rest = text.substr(digits.size());
  return number;
}

static uint64_t ParseTime(const std::string &text, const std::string &where) {
  std::string unit;
  const double number = ParseNumber(text, where, &unit);
  static const struct {
    const char *unit;
    double ns;
  } kUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  for (const auto &known : kUnits) {
    if (unit != known.unit) continue;
    if (number * known.ns > 3600e9)
      throw UsageError(where + ": '" + text + "' is longer than an hour");
    return llround(number * known.ns);
  }
  throw UsageError(where + ": '" + text + "' needs a unit: ns, us, ms or s");
}

static uint64_t ParseShare(const std::string &text, const std::string &where) {
  std::string rest;
  const double percent = ParseNumber(text, where, &rest);
  if (rest != "%") throw UsageError(where + ": '" + text + "' is not a share, such as 1%");
  const double ppm = percent * 10000;
  if (ppm < 1 || ppm > Share::kAll)
    throw UsageError(where + ": a share is between 0.0001% and 100%");
  return llround(ppm);
}

static int ParseErrno(const std::string &name, const std::string &where) {
  for (int code = 1; code < 134; ++code) {
    const char *known = strerrorname_np(code);
    if (known != nullptr && name == known) return code;
  }
  throw UsageError(where + ": '" + name + "' is no error's name, such as EIO");
}

/** Splits OPERATION=FIELD[:FIELD…]. Returns the operation. */
static Operation ParseInjection(const std::string &text, const std::string &where,
                                std::vector<std::string> *fields) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw UsageError(where + ": expected OPERATION=…, such as lookup=…");
  size_t begin = equals + 1;
  while (begin != 0) {
    const size_t end = text.find(':', begin);
    fields->push_back(text.substr(begin, end - begin));
    begin = end + 1;  // 0 after the last field
  }
  const std::string name = text.substr(0, equals);
  for (int i = 0; i < kNumOperations; ++i) {
    if (name == kOperationNames[i].callback) return static_cast<Operation>(i);
  }
  throw UsageError(where + ": there is no operation '" + name +
                   "'; samplefs --help lists them");
}

static void ParseDelay(const std::string &text, Settings *settings) {
  const std::string where = "--delay " + text;
  std::vector<std::string> fields;
  const Operation operation = ParseInjection(text, where, &fields);
  const uint64_t ns = ParseTime(fields[0], where);
  bool spin = false, after = false;
  uint64_t ppm = Share::kAll;
  for (size_t i = 1; i < fields.size(); ++i) {
    if (fields[i] == "spin")
      spin = true;
    else if (fields[i] == "after")
      after = true;
    else
      ppm = ParseShare(fields[i], where);
  }
  settings->injections[operation].delays.emplace_back(ns, spin, after, ppm);
}

static void ParseError(const std::string &text, Settings *settings) {
  const std::string where = "--error " + text;
  std::vector<std::string> fields;
  const Operation operation = ParseInjection(text, where, &fields);
  if (operation == kForget || operation == kForgetMulti)
    throw UsageError(where + ": a forget has no reply that could carry an error");
  if (fields.size() > 2) throw UsageError(where + ": expected OPERATION=ERRNO[:SHARE%]");
  const uint64_t ppm = fields.size() == 2 ? ParseShare(fields[1], where) : Share::kAll;
  settings->injections[operation].errors.emplace_back(ParseErrno(fields[0], where), ppm);
}

static void ParseDownload(const std::string &text, Settings *settings) {
  const std::string where = "--download " + text;
  std::vector<std::string> fields;
  const Operation operation = ParseInjection(text, where, &fields);
  if (operation == kForget || operation == kForgetMulti)
    throw UsageError(where + ": a forget needs no file");
  if (fields.size() > 2) throw UsageError(where + ": expected OPERATION=PORT[:SHARE%]");
  std::string rest;
  const double port = ParseNumber(fields[0], where, &rest);
  if (!rest.empty() || port != floor(port) || port < 1 || port > 65535)
    throw UsageError(where + ": '" + fields[0] + "' is not between 1 and 65535");
  const uint64_t ppm = fields.size() == 2 ? ParseShare(fields[1], where) : Share::kAll;
  settings->injections[operation].downloads.emplace_back(static_cast<int>(port), ppm);
}

void ParseOptions(int argc, char **argv, Options *options) {
  options->settings.kernel_cache = 60;
  std::vector<std::string> operands;
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    if (option == "--talk") {
      if (i + 2 >= argc) throw UsageError("--talk: expected SOCKET and internal affairs or calls");
      options->talk_socket = argv[++i];
      while (++i < argc) {
        options->talk_command += (options->talk_command.empty() ? "" : " ");
        options->talk_command += argv[i];
      }
      return;
    }
    if (option == "-h" || option == "--help") {
      options->help = true;
      return;
    }
    if (option == "-f" || option == "--foreground") {
      options->foreground = true;
      continue;
    }
    if (option.size() < 2 || option[0] != '-') {
      operands.push_back(option);
      continue;
    }

    // The other options have a value: --option=value or --option value.
    std::string value;
    const size_t equals = option.find('=');
    const bool attached = option.compare(0, 2, "--") == 0 && equals != std::string::npos;
    if (attached) {
      value = option.substr(equals + 1);
      option.resize(equals);
    }
    if (option != "--delay" && option != "--error" && option != "--download" &&
        option != "--kernel-cache" &&
        option != "--threads" && option != "--socket" && option != "-o")
      throw UsageError("there is no option '" + option + "'");
    if (!attached) {
      if (++i >= argc) throw UsageError(option + ": expected a value");
      value = argv[i];
    }

    std::string rest;
    if (option == "--delay") {
      ParseDelay(value, &options->settings);
    } else if (option == "--error") {
      ParseError(value, &options->settings);
    } else if (option == "--download") {
      ParseDownload(value, &options->settings);
    } else if (option == "--kernel-cache") {
      options->settings.kernel_cache = ParseNumber(value, option, &rest);
      if (!rest.empty()) throw UsageError(option + ": '" + value + "' is not in seconds");
    } else if (option == "--threads") {
      const double threads = ParseNumber(value, option, &rest);
      options->threads = static_cast<int>(std::min(threads, 1e6));
      if (!rest.empty() || options->threads != threads || threads < 1 || threads > 1000)
        throw UsageError(option + ": '" + value + "' is not between 1 and 1000");
    } else if (option == "--socket") {
      options->socket = value;
    } else {
      options->mount_options.push_back(value);
    }
  }
  if (operands.size() != 2)
    throw UsageError("expected DIRECTORY MOUNTPOINT, got " +
                     std::to_string(operands.size()) + " operands");
  options->settings.directory = operands[0];
  options->mountpoint = operands[1];
}

}  // namespace loader
