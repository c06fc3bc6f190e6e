/** The interface of the stub library (namespace loader) and the main library (cvmfs). */
#ifndef SAMPLES_FS_LOADER_H_
#define SAMPLES_FS_LOADER_H_

#include <fuse3/fuse_lowlevel.h>

#include <string>

#include "inject.h"

namespace loader {

enum Operation {
  kLookup,
  kForget,
  kForgetMulti,
  kGetattr,
  kReadlink,
  kOpendir,
  kReleasedir,
  kReaddir,
  kOpen,
  kRead,
  kRelease,
  kStatfs,
  kGetxattr,
  kListxattr,
  kNumOperations
};

struct OperationName {
  const char *callback;  // cvmfs_NAME, and the name in --delay, --error and --download
  const char *heading;   // in `internal affairs`
};
inline constexpr OperationName kOperationNames[kNumOperations] = {
    {"lookup", "Lookup"},
    {"forget", "Forget"},
    {"forget_multi", "Multi-Forget"},
    {"getattr", "Getattr"},
    {"readlink", "Readlink"},
    {"opendir", "Opendir"},
    {"releasedir", "Releasedir"},
    {"readdir", "Readdir"},
    {"open", "Open"},
    {"read", "Read"},
    {"release", "Release"},
    {"statfs", "Statfs"},
    {"getxattr", "Getxattr"},
    {"listxattr", "Listxattr"},
};

/** The part of the command line that the main library needs. */
struct Settings {
  std::string directory;    // the tree to serve
  double kernel_cache = 0;  // seconds that the kernel may keep entries and attributes
  Injection injections[kNumOperations];
};

/** Type of g_cvmfs_exports, the only symbol that the main library exports. */
struct CvmfsExports {
  /** Returns 0 or the errno of opening settings->directory. */
  int (*init)(Settings *settings);
  /** Returns the answer to a command of --talk; empty if the command is unknown. */
  std::string (*answer)(const std::string &command);
  struct fuse_lowlevel_ops operations;
};

}  // namespace loader

#endif  // SAMPLES_FS_LOADER_H_
