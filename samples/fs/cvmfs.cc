/**
 * The main library: callbacks that serve a directory tree read-only, with the structure
 * and names of the CernVM-FS client's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "calls.h"
#include "download.h"
#include "histogram.h"
#include "inode_table.h"
#include "loader.h"

namespace cvmfs {

static loader::Settings *settings;
static InodeTable *inodes;
static Fetcher *fetcher;  // nullptr: there are no downloads
static int root_fd;
static Log2Histogram histograms[loader::kNumOperations];
static CallLog calls;
static std::atomic<int64_t> n_lookup_negative{0};
static std::atomic<int64_t> no_open_dirs{0};
static std::atomic<int64_t> no_open_files{0};

/** Returns a request's number, which libfuse keeps after the session's address. */
static uint64_t Unique(fuse_req_t req) {
  uint64_t unique;
  memcpy(&unique, reinterpret_cast<const char *>(req) + sizeof(void *), sizeof(unique));
  return unique;
}

/** Waits for the call's due downloads. Returns whether all succeeded. */
static bool Downloaded(loader::Operation operation) {
  Injection &injection = settings->injections[operation];
  bool ok = true;
  for (Download &download : injection.downloads) {
    if (!download.share.Due()) continue;
    const uint64_t start = MonotonicNs();
    ok = fetcher->Fetch(download.port, loader::kOperationNames[operation].callback) && ok;
    injection.download_ns += MonotonicNs() - start;
  }
  return ok;
}

/** A running callback, from its first to its last line. */
class Callback {
 public:
  Callback(loader::Operation operation, fuse_req_t req)
      : operation_(operation), call_((++in_flight, calls.Enter(operation, Unique(req)))) {}
  ~Callback() {
    settings->injections[operation_].Delays(true, &call_->after_begin, &call_->after_end);
    const uint64_t left = MonotonicNs();
    histograms[operation_].Add(left - call_->entered);
    call_->left = left;
    --in_flight;
  }
  Callback(const Callback &) = delete;
  Callback &operator=(const Callback &) = delete;

  void Delay() {
    settings->injections[operation_].Delays(false, &call_->delay_begin, &call_->delay_end);
  }
  /** Delays and fails the call according to the options. Returns whether it has replied. */
  bool Injected(fuse_req_t req) {
    Delay();
    int error = settings->injections[operation_].Fail();
    if (!Downloaded(operation_) && error == 0) error = EIO;
    if (error != 0) fuse_reply_err(req, error);
    return error != 0;
  }

  /** Number of calls that were entered and have not returned yet. */
  static std::atomic<int64_t> in_flight;

 private:
  const loader::Operation operation_;
  Call *const call_;
};
std::atomic<int64_t> Callback::in_flight{0};

/** Does an lstat of a file of the served tree. Returns 0 or the errno. */
static int Stat(const std::string &path, struct stat *info) {
  return fstatat(root_fd, path.c_str(), info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

static void cvmfs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  Callback callback(loader::kLookup, req);
  if (callback.Injected(req)) return;

  struct fuse_entry_param entry = {};
  entry.attr_timeout = entry.entry_timeout = settings->kernel_cache;
  const std::string directory = inodes->Path(parent);
  const std::string path = directory + "/" + name;
  const int error = directory.empty() ? ESTALE : Stat(path, &entry.attr);
  if (error == ENOENT) {
    // Inode 0: the kernel may cache that there is no such file.
    ++n_lookup_negative;
    fuse_reply_entry(req, &entry);
    return;
  }
  if (error != 0) {
    fuse_reply_err(req, error);
    return;
  }
  entry.ino = entry.attr.st_ino = inodes->Reference(path, entry.attr);
  // If the caller was interrupted, the kernel gets no reply and no reference.
  if (fuse_reply_entry(req, &entry) != 0) inodes->Forget(entry.ino, 1);
}

static void cvmfs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup) {
  Callback callback(loader::kForget, req);
  callback.Delay();
  inodes->Forget(ino, nlookup);
  fuse_reply_none(req);
}

static void cvmfs_forget_multi(fuse_req_t req, size_t count,
                               struct fuse_forget_data *forgets) {
  Callback callback(loader::kForgetMulti, req);
  callback.Delay();
  for (size_t i = 0; i < count; ++i) inodes->Forget(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(req);
}

static void cvmfs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *) {
  Callback callback(loader::kGetattr, req);
  if (callback.Injected(req)) return;

  struct stat info;
  const int error = Stat(inodes->Path(ino), &info);
  if (error != 0) {
    fuse_reply_err(req, error);
    return;
  }
  info.st_ino = ino;
  fuse_reply_attr(req, &info, settings->kernel_cache);
}

static void cvmfs_readlink(fuse_req_t req, fuse_ino_t ino) {
  Callback callback(loader::kReadlink, req);
  if (callback.Injected(req)) return;

  char target[PATH_MAX + 1];
  const ssize_t size =
      readlinkat(root_fd, inodes->Path(ino).c_str(), target, sizeof(target) - 1);
  if (size < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  target[size] = '\0';
  fuse_reply_readlink(req, target);
}

/** Makes the whole listing in the kernel's format, as the client does. */
static void cvmfs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  Callback callback(loader::kOpendir, req);
  if (callback.Injected(req)) return;

  const int fd = openat(root_fd, inodes->Path(ino).c_str(),
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *directory = fd < 0 ? nullptr : fdopendir(fd);
  if (directory == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    fuse_reply_err(req, error);
    return;
  }
  auto listing = std::make_unique<std::string>();
  while (const struct dirent *entry = readdir(directory)) {
    struct stat info = {};
    info.st_ino = entry->d_ino;
    info.st_mode = DTTOIF(entry->d_type);
    const size_t begin = listing->size();
    listing->resize(begin + fuse_add_direntry(req, nullptr, 0, entry->d_name, nullptr, 0));
    fuse_add_direntry(req, &(*listing)[begin], listing->size() - begin, entry->d_name,
                      &info, listing->size());
  }
  closedir(directory);

  fi->fh = reinterpret_cast<uint64_t>(listing.get());
  ++no_open_dirs;
  if (fuse_reply_open(req, fi) == 0)
    listing.release();
  else
    --no_open_dirs;
}

static void cvmfs_releasedir(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi) {
  Callback callback(loader::kReleasedir, req);
  // There is no second RELEASEDIR, so an injected error must not leak the listing.
  delete reinterpret_cast<std::string *>(fi->fh);
  --no_open_dirs;
  if (callback.Injected(req)) return;
  fuse_reply_err(req, 0);
}

static void cvmfs_readdir(fuse_req_t req, fuse_ino_t, size_t size, off_t off,
                          struct fuse_file_info *fi) {
  Callback callback(loader::kReaddir, req);
  if (callback.Injected(req)) return;

  const std::string &listing = *reinterpret_cast<std::string *>(fi->fh);
  // The last entry may be cut: the kernel reads complete ones and continues from there.
  const size_t begin = std::min(static_cast<size_t>(off), listing.size());
  fuse_reply_buf(req, listing.data() + begin, std::min(size, listing.size() - begin));
}

static void cvmfs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  Callback callback(loader::kOpen, req);
  if (callback.Injected(req)) return;

  if ((fi->flags & O_ACCMODE) != O_RDONLY) {
    fuse_reply_err(req, EROFS);
    return;
  }
  const int fd =
      openat(root_fd, inodes->Path(ino).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  fi->fh = fd;
  fi->keep_cache = settings->kernel_cache > 0;
  ++no_open_files;
  if (fuse_reply_open(req, fi) != 0) {
    close(fd);
    --no_open_files;
  }
}

static void cvmfs_read(fuse_req_t req, fuse_ino_t, size_t size, off_t off,
                       struct fuse_file_info *fi) {
  Callback callback(loader::kRead, req);
  if (callback.Injected(req)) return;

  const std::unique_ptr<char[]> buffer(new char[size]);
  const ssize_t nbytes = pread(fi->fh, buffer.get(), size, off);
  if (nbytes < 0)
    fuse_reply_err(req, errno);
  else
    fuse_reply_buf(req, buffer.get(), nbytes);
}

static void cvmfs_release(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi) {
  Callback callback(loader::kRelease, req);
  close(fi->fh);
  --no_open_files;
  if (callback.Injected(req)) return;
  fuse_reply_err(req, 0);
}

static void cvmfs_statfs(fuse_req_t req, fuse_ino_t) {
  Callback callback(loader::kStatfs, req);
  if (callback.Injected(req)) return;

  struct statvfs info;
  if (fstatvfs(root_fd, &info) != 0)
    fuse_reply_err(req, errno);
  else
    fuse_reply_statfs(req, &info);
}

/** Replies with an extended attribute or a list of them, or with its size. */
static void ReplyXattr(fuse_req_t req, const std::string &value, size_t size) {
  if (size == 0)
    fuse_reply_xattr(req, value.size());
  else if (size < value.size())
    fuse_reply_err(req, ERANGE);
  else
    fuse_reply_buf(req, value.data(), value.size());
}

/** Serves user.inode for every file, and user.pid for the root, as the client does. */
static void cvmfs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
  Callback callback(loader::kGetxattr, req);
  if (callback.Injected(req)) return;

  if (strcmp(name, "user.inode") == 0)
    ReplyXattr(req, std::to_string(ino), size);
  else if (ino == FUSE_ROOT_ID && strcmp(name, "user.pid") == 0)
    ReplyXattr(req, std::to_string(getpid()), size);
  else
    fuse_reply_err(req, ENODATA);
}

static void cvmfs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  Callback callback(loader::kListxattr, req);
  if (callback.Injected(req)) return;

  std::string names("user.inode\0", 11);
  if (ino == FUSE_ROOT_ID) names.append("user.pid\0", 9);
  ReplyXattr(req, names, size);
}

static void cvmfs_init(void *, struct fuse_conn_info *connection) {
  // With it, the kernel requests a file's attributes before reads, with a frequency that
  // depends on the kernel: the number of getattr calls would not be exact.
  connection->want &= ~FUSE_CAP_AUTO_INVAL_DATA;
  // Start the thread here: the process that mounts forks the one that serves.
  for (const Injection &injection : settings->injections) {
    if (!injection.downloads.empty() && fetcher == nullptr) fetcher = new Fetcher();
  }
}

static void cvmfs_destroy(void *) { close(root_fd); }

static std::string InternalAffairs() {
  std::string counters =
      "\nRaw Counters:\nName|Value|Description\n"
      "cvmfs.n_fs_lookup_negative|" +
      std::to_string(n_lookup_negative) +
      "|Number of negative lookups\n"
      "cvmfs.no_open_dirs|" +
      std::to_string(no_open_dirs) +
      "|Number of currently opened directories\n"
      "cvmfs.no_open_files|" +
      std::to_string(no_open_files) +
      "|Number of currently opened files\n"
      "inode_tracker.no_reference|" +
      std::to_string(inodes->size()) + "|currently active inodes\n";

  // A callback counts when it returns, after its reply. Wait up to a minute for running
  // callbacks, so that all calls up to a client's last system call are counted. The
  // counters above were read before: if no file is open, every release is counted.
  for (int i = 0; i < 60000 && Callback::in_flight > 0; ++i) usleep(1000);

  std::string text = "Latency distribution of system calls:\n";
  for (int i = 0; i < loader::kNumOperations; ++i) {
    const std::string name = loader::kOperationNames[i].callback;
    const Injection &injection = settings->injections[i];
    text +=
        std::string(loader::kOperationNames[i].heading) + "\n" + histograms[i].ToString();
    uint64_t n_delay = 0;
    for (const Delay &delay : injection.delays) n_delay += delay.share.due();
    uint64_t n_error = 0;
    for (const Error &error : injection.errors) n_error += error.share.due();
    uint64_t n_download = 0;
    for (const Download &download : injection.downloads) n_download += download.share.due();
    counters += "samplefs.ns_" + name + "|" + std::to_string(histograms[i].sum_ns()) +
                "|time spent in cvmfs_" + name + " [ns]\n" + "samplefs.n_delay_" + name +
                "|" + std::to_string(n_delay) + "|Number of delays by --delay\n" +
                "samplefs.ns_delay_" + name + "|" + std::to_string(injection.delay_ns) +
                "|time spent in those delays [ns]\n" + "samplefs.n_error_" + name + "|" +
                std::to_string(n_error) + "|Number of errors by --error\n" +
                "samplefs.n_download_" + name + "|" + std::to_string(n_download) +
                "|Number of downloads by --download\n" + "samplefs.ns_download_" + name +
                "|" + std::to_string(injection.download_ns) +
                "|time spent waiting for those downloads [ns]\n";
  }
  return text + counters;
}

/** Returns the answer to a command of --talk; empty if the command is unknown. */
static std::string Answer(const std::string &command) {
  if (command == "internal affairs") return InternalAffairs();
  if (command == "calls") return calls.ToString();
  return "";
}

static int Init(loader::Settings *of_loader) {
  settings = of_loader;
  root_fd = open(settings->directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat info;
  if (root_fd < 0 || fstat(root_fd, &info) != 0) return errno;
  inodes = new InodeTable(info);
  return 0;
}

/** Makes the table of operations at run time on the heap, as the client does. */
static loader::CvmfsExports *MakeExports() {
  auto exports = new loader::CvmfsExports();
  exports->init = Init;
  exports->answer = Answer;
  struct fuse_lowlevel_ops *operations = &exports->operations;
  operations->init = cvmfs_init;
  operations->destroy = cvmfs_destroy;
  operations->lookup = cvmfs_lookup;
  operations->forget = cvmfs_forget;
  operations->forget_multi = cvmfs_forget_multi;
  operations->getattr = cvmfs_getattr;
  operations->readlink = cvmfs_readlink;
  operations->opendir = cvmfs_opendir;
  operations->releasedir = cvmfs_releasedir;
  operations->readdir = cvmfs_readdir;
  operations->open = cvmfs_open;
  operations->read = cvmfs_read;
  operations->release = cvmfs_release;
  operations->statfs = cvmfs_statfs;
  operations->getxattr = cvmfs_getxattr;
  operations->listxattr = cvmfs_listxattr;
  return exports;
}

}  // namespace cvmfs

extern "C" __attribute__((visibility("default"))) loader::CvmfsExports *g_cvmfs_exports;
loader::CvmfsExports *g_cvmfs_exports = cvmfs::MakeExports();
