/** The command line of the sample file system. */
#ifndef SAMPLES_FS_OPTIONS_H_
#define SAMPLES_FS_OPTIONS_H_

#include <stdexcept>
#include <string>
#include <vector>

#include "loader.h"

namespace loader {

/** A mistake on the command line, described in one line. */
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  Settings settings;
  std::string mountpoint;
  std::vector<std::string> mount_options;  // -o
  std::string socket;                      // --socket; empty: no internal affairs
  int threads = 10;
  bool foreground = false;
  bool help = false;
  std::string talk_socket;  // --talk: query a running daemon instead of mounting
  std::string talk_command;
};

extern const char kUsage[];

void ParseOptions(int argc, char **argv, Options *options);

}  // namespace loader

#endif  // SAMPLES_FS_OPTIONS_H_
