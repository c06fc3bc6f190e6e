/**
 * The stub library: mounts, and forwards callbacks to the main library. The loader of the
 * CernVM-FS client does so to exchange the main library at run time.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "loader.h"
#include "options.h"
#include "talk.h"

namespace loader {

static CvmfsExports *cvmfs_exports;

static void stub_init(void *userdata, struct fuse_conn_info *connection) {
  cvmfs_exports->operations.init(userdata, connection);
}
static void stub_destroy(void *userdata) { cvmfs_exports->operations.destroy(userdata); }
static void stub_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  cvmfs_exports->operations.lookup(req, parent, name);
}
static void stub_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup) {
  cvmfs_exports->operations.forget(req, ino, nlookup);
}
static void stub_forget_multi(fuse_req_t req, size_t count,
                              struct fuse_forget_data *forgets) {
  cvmfs_exports->operations.forget_multi(req, count, forgets);
}
static void stub_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  cvmfs_exports->operations.getattr(req, ino, fi);
}
static void stub_readlink(fuse_req_t req, fuse_ino_t ino) {
  cvmfs_exports->operations.readlink(req, ino);
}
static void stub_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  cvmfs_exports->operations.opendir(req, ino, fi);
}
static void stub_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  cvmfs_exports->operations.releasedir(req, ino, fi);
}
static void stub_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                         struct fuse_file_info *fi) {
  cvmfs_exports->operations.readdir(req, ino, size, off, fi);
}
static void stub_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  cvmfs_exports->operations.open(req, ino, fi);
}
static void stub_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                      struct fuse_file_info *fi) {
  cvmfs_exports->operations.read(req, ino, size, off, fi);
}
static void stub_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  cvmfs_exports->operations.release(req, ino, fi);
}
static void stub_statfs(fuse_req_t req, fuse_ino_t ino) {
  cvmfs_exports->operations.statfs(req, ino);
}
static void stub_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
  cvmfs_exports->operations.getxattr(req, ino, name, size);
}
static void stub_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  cvmfs_exports->operations.listxattr(req, ino, size);
}

static void SetOperations(struct fuse_lowlevel_ops *operations) {
  operations->init = stub_init;
  operations->destroy = stub_destroy;
  operations->lookup = stub_lookup;
  operations->forget = stub_forget;
  operations->forget_multi = stub_forget_multi;
  operations->getattr = stub_getattr;
  operations->readlink = stub_readlink;
  operations->opendir = stub_opendir;
  operations->releasedir = stub_releasedir;
  operations->readdir = stub_readdir;
  operations->open = stub_open;
  operations->read = stub_read;
  operations->release = stub_release;
  operations->statfs = stub_statfs;
  operations->getxattr = stub_getxattr;
  operations->listxattr = stub_listxattr;
}

/** Loads the main library from this library's directory. */
static CvmfsExports *LoadMainLibrary() {
  Dl_info self;
  if (dladdr(&cvmfs_exports, &self) == 0) return nullptr;
  std::string path(self.dli_fname);
  path.resize(path.rfind('/') + 1);
  path += "libcvmfs_fuse3.so." VERSION;
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void *exports = library == nullptr ? nullptr : dlsym(library, "g_cvmfs_exports");
  if (exports == nullptr) {
    fprintf(stderr, "samplefs: cannot load the main library: %s\n", dlerror());
    return nullptr;
  }
  return *static_cast<CvmfsExports **>(exports);
}

static int Fail(const std::string &what) {
  fprintf(stderr, "samplefs: %s\n", what.c_str());
  return 1;
}

/** Serves until it is unmounted, or until SIGTERM, SIGINT or SIGHUP. */
static int Loop(struct fuse_session *session, const Options &options, int listener) {
  if (fuse_set_signal_handlers(session) != 0) return Fail("cannot set signal handlers");
  if (fuse_session_mount(session, options.mountpoint.c_str()) != 0)
    return Fail("cannot mount on " + options.mountpoint);
  int result = fuse_daemonize(options.foreground);
  if (result == 0) {
    if (listener >= 0) TalkSpawn(listener, cvmfs_exports->answer);
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, options.threads);
    fuse_loop_cfg_set_idle_threads(config, options.threads);
    result = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
  }
  fuse_session_unmount(session);
  fuse_remove_signal_handlers(session);
  return result < 0 ? 1 : 0;  // a signal's number means success
}

static int Mount(Options *options) {
  // Make the path absolute: libfuse changes the working directory to /.
  struct stat info;
  char *mountpoint = realpath(options->mountpoint.c_str(), nullptr);
  if (mountpoint == nullptr || stat(mountpoint, &info) != 0)
    return Fail("cannot mount on " + options->mountpoint + ": " + strerror(errno));
  options->mountpoint = mountpoint;
  free(mountpoint);
  if (!S_ISDIR(info.st_mode))
    return Fail("cannot mount on " + options->mountpoint + ": not a directory");

  cvmfs_exports = LoadMainLibrary();
  if (cvmfs_exports == nullptr) return 1;
  const int error = cvmfs_exports->init(&options->settings);
  if (error != 0)
    return Fail("cannot serve " + options->settings.directory + ": " + strerror(error));

  // Only root may use allow_other, unless /etc/fuse.conf allows it to others.
  std::string mount_options = "fsname=samplefs,ro,nosuid,nodev";
  if (geteuid() == 0) mount_options += ",allow_other";
  for (const std::string &option : options->mount_options) mount_options += "," + option;
  struct fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  for (const char *argument : {"samplefs", "-o", mount_options.c_str()})
    fuse_opt_add_arg(&arguments, argument);
  struct fuse_lowlevel_ops operations = {};
  SetOperations(&operations);
  struct fuse_session *session =
      fuse_session_new(&arguments, &operations, sizeof(operations), nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr) return Fail("wrong mount options: " + mount_options);

  int listener = -1;
  if (!options->socket.empty()) {
    listener = TalkListen(options->socket);
    if (listener < 0)
      return Fail("cannot listen on " + options->socket + ": " + strerror(errno));
    char *socket = realpath(options->socket.c_str(), nullptr);
    if (socket != nullptr) options->socket = socket;
    free(socket);
  }
  // The serving threads inherit this: delays end in time (see inject.cc).
  prctl(PR_SET_TIMERSLACK, 1);
  const int status = Loop(session, *options, listener);
  if (listener >= 0) unlink(options->socket.c_str());
  fuse_session_destroy(session);
  return status;
}

}  // namespace loader

extern "C" __attribute__((visibility("default"))) int stub_main(int argc, char **argv) {
  // Never freed: at exit, the thread that answers --talk may still read it.
  loader::Options &options = *new loader::Options();
  try {
    loader::ParseOptions(argc, argv, &options);
  } catch (const loader::UsageError &error) {
    fprintf(stderr, "samplefs: %s\nTry 'samplefs --help'.\n", error.what());
    return 2;
  }
  if (options.help) {
    fputs(loader::kUsage, stdout);
    return 0;
  }
  if (!options.talk_socket.empty())
    return loader::TalkMain(options.talk_socket, options.talk_command);
  return loader::Mount(&options);
}
