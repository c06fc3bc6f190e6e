/**
 * A file system that passes every operation on to a directory below it, on libfuse's
 * low-level API, and counts the requests that it answers. It needs root.
 *
 * Its two configurations are those of 'To FUSE or Not to FUSE' (FAST '17): none of the
 * options, or --optimised.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace {

const char kUsage[] =
    "Usage: passfs [options] DIRECTORY MOUNTPOINT\n"
    "\n"
    "Serves DIRECTORY at MOUNTPOINT, in the foreground, until SIGTERM or an unmount.\n"
    "\n"
    "  --optimised       the writeback cache, splice, requests of any size, several threads\n"
    "  --writeback       the writeback cache\n"
    "  --threads N       callbacks at work at the same time, at most (default: 1;\n"
    "                    --optimised: 10)\n"
    "  --unchecked       for root alone, without the kernel's check of permissions: access\n"
    "                    requests come here\n"
    "  --timeout SECONDS how long the kernel may keep entries and attributes (default: 1)\n"
    "  --counts FILE     at the end, write 'OPERATION REQUESTS' lines to FILE\n";

/** ioctl: ask the kernel for a page of the file (NOTIFY_RETRIEVE). */
constexpr unsigned kRetrieve = _IO('P', 1);

struct Node {
  int fd;  // O_PATH
  dev_t device;
  ino_t inode;
  uint64_t references;
  char self[32];  // /proc/self/fd/N
};

struct Settings {
  bool writeback = false, splice = false, checked = true;
  int threads = 0;
  double timeout = 1;
  std::string counts;
};

Settings settings;
struct fuse_session *session;
Node root;
std::mutex mutex;  // of nodes, and of their references
std::map<std::pair<dev_t, ino_t>, Node *> nodes;
std::mutex counting;
std::map<std::string, uint64_t> counts;

void Count(const char *operation) {
  std::lock_guard<std::mutex> guard(counting);
  ++counts[operation];
}

Node &Of(fuse_ino_t ino) {
  return ino == FUSE_ROOT_ID ? root : *reinterpret_cast<Node *>(ino);
}
const char *Self(fuse_ino_t ino) { return Of(ino).self; }

/** Replies with 0, or with errno if the call failed. */
void Done(fuse_req_t req, int result) { fuse_reply_err(req, result == -1 ? errno : 0); }

/** Looks a name up, and takes a reference to what it names. Returns 0 or an errno. */
int Find(fuse_ino_t parent, const char *name, struct fuse_entry_param *entry) {
  *entry = {};
  entry->attr_timeout = entry->entry_timeout = settings.timeout;
  const int fd = openat(Of(parent).fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno;
  if (fstatat(fd, "", &entry->attr, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
    const int error = errno;
    close(fd);
    return error;
  }
  std::lock_guard<std::mutex> guard(mutex);
  Node *&node = nodes[{entry->attr.st_dev, entry->attr.st_ino}];
  if (node == nullptr) {
    node = new Node{fd, entry->attr.st_dev, entry->attr.st_ino, 0, {}};
    snprintf(node->self, sizeof(node->self), "/proc/self/fd/%d", fd);
  } else {
    close(fd);
  }
  ++node->references;
  entry->ino = reinterpret_cast<fuse_ino_t>(node);
  return 0;
}

void Release(fuse_ino_t ino, uint64_t references) {
  if (ino == FUSE_ROOT_ID) return;
  std::lock_guard<std::mutex> guard(mutex);
  Node *node = &Of(ino);
  node->references -= references;
  if (node->references != 0) return;
  nodes.erase({node->device, node->inode});
  close(node->fd);
  delete node;
}

/** Replies with the entry of a name, or with an error if `result` is -1. */
void Entry(fuse_req_t req, int result, fuse_ino_t parent, const char *name) {
  struct fuse_entry_param entry;
  const int error = result == -1 ? errno : Find(parent, name, &entry);
  if (error != 0)
    fuse_reply_err(req, error);
  else if (fuse_reply_entry(req, &entry) != 0)
    Release(entry.ino, 1);
}

void pass_init(void *, struct fuse_conn_info *connection) {
  Count("init");
  const unsigned splice =
      FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_SPLICE_READ;
  connection->want &= ~(splice | FUSE_CAP_WRITEBACK_CACHE);
  if (settings.splice) connection->want |= connection->capable & splice;
  if (settings.writeback) connection->want |= connection->capable & FUSE_CAP_WRITEBACK_CACHE;
  if (!settings.splice) connection->max_write = 4096;  // as before Linux 2.6.26's big_writes
}

void pass_destroy(void *) { Count("destroy"); }

void pass_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  Count("lookup");
  Entry(req, 0, parent, name);
}

void pass_forget(fuse_req_t req, fuse_ino_t ino, uint64_t references) {
  Count("forget");
  Release(ino, references);
  fuse_reply_none(req);
}

void pass_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets) {
  Count("batch_forget");
  for (size_t i = 0; i < count; ++i) Release(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(req);
}

/** Replies with a file's attributes. */
void Attributes(fuse_req_t req, fuse_ino_t ino) {
  struct stat info;
  if (fstatat(Of(ino).fd, "", &info, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
    fuse_reply_err(req, errno);
  else
    fuse_reply_attr(req, &info, settings.timeout);
}

void pass_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *) {
  Count("getattr");
  Attributes(req, ino);
}

void pass_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attributes, int which,
                  struct fuse_file_info *) {
  Count("setattr");
  int result = 0;
  if (which & FUSE_SET_ATTR_MODE) result = chmod(Self(ino), attributes->st_mode);
  if (result == 0 && which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
    result = fchownat(
        Of(ino).fd, "", which & FUSE_SET_ATTR_UID ? attributes->st_uid : static_cast<uid_t>(-1),
        which & FUSE_SET_ATTR_GID ? attributes->st_gid : static_cast<gid_t>(-1),
        AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
  if (result == 0 && which & FUSE_SET_ATTR_SIZE)
    result = truncate(Self(ino), attributes->st_size);
  if (result == 0 && which & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)) {
    struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    if (which & FUSE_SET_ATTR_ATIME_NOW)
      times[0].tv_nsec = UTIME_NOW;
    else if (which & FUSE_SET_ATTR_ATIME)
      times[0] = attributes->st_atim;
    if (which & FUSE_SET_ATTR_MTIME_NOW)
      times[1].tv_nsec = UTIME_NOW;
    else if (which & FUSE_SET_ATTR_MTIME)
      times[1] = attributes->st_mtim;
    result = utimensat(AT_FDCWD, Self(ino), times, 0);
  }
  if (result != 0)
    fuse_reply_err(req, errno);
  else
    Attributes(req, ino);
}

void pass_readlink(fuse_req_t req, fuse_ino_t ino) {
  Count("readlink");
  char target[PATH_MAX + 1];
  const ssize_t size = readlinkat(Of(ino).fd, "", target, PATH_MAX);
  if (size < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  target[size] = '\0';
  fuse_reply_readlink(req, target);
}

void pass_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                dev_t device) {
  Count("mknod");
  Entry(req, mknodat(Of(parent).fd, name, mode, device), parent, name);
}

void pass_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode) {
  Count("mkdir");
  Entry(req, mkdirat(Of(parent).fd, name, mode), parent, name);
}

void pass_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name) {
  Count("symlink");
  Entry(req, symlinkat(target, Of(parent).fd, name), parent, name);
}

void pass_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name) {
  Count("link");
  Entry(req, linkat(AT_FDCWD, Self(ino), Of(parent).fd, name, AT_SYMLINK_FOLLOW), parent,
        name);
}

void pass_unlink(fuse_req_t req, fuse_ino_t parent, const char *name) {
  Count("unlink");
  Done(req, unlinkat(Of(parent).fd, name, 0));
}

void pass_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name) {
  Count("rmdir");
  Done(req, unlinkat(Of(parent).fd, name, AT_REMOVEDIR));
}

void pass_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
                 const char *new_name, unsigned flags) {
  Count(flags ? "rename2" : "rename");
  Done(req, renameat2(Of(parent).fd, name, Of(to).fd, new_name, flags));
}

/** The flags to open a file with: the writeback cache reads what is only written. */
int Flags(int flags) {
  flags &= ~(O_NOFOLLOW | O_DIRECT);
  if (settings.writeback) {
    if ((flags & O_ACCMODE) == O_WRONLY) flags = (flags & ~O_ACCMODE) | O_RDWR;
    flags &= ~O_APPEND;
  }
  return flags | O_CLOEXEC;
}

void pass_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                 struct fuse_file_info *fi) {
  Count("create");
  const int fd = openat(Of(parent).fd, name, Flags(fi->flags) | O_CREAT, mode);
  struct fuse_entry_param entry;
  const int error = fd < 0 ? errno : Find(parent, name, &entry);
  fi->fh = fd;
  if (error != 0) {
    if (fd >= 0) close(fd);
    fuse_reply_err(req, error);
  } else if (fuse_reply_create(req, &entry, fi) != 0) {
    close(fd);
    Release(entry.ino, 1);
  }
}

void pass_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  Count("open");
  const int fd = open(Self(ino), Flags(fi->flags));
  if (fd < 0) {
    fuse_reply_err(req, errno);
    return;
  }
  fi->fh = fd;
  if (fuse_reply_open(req, fi) != 0) close(fd);
}

void pass_read(fuse_req_t req, fuse_ino_t, size_t size, off_t off,
               struct fuse_file_info *fi) {
  Count("read");
  struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(size);
  buffer.buf[0].flags =
      static_cast<enum fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  buffer.buf[0].fd = fi->fh;
  buffer.buf[0].pos = off;
  fuse_reply_data(req, &buffer,
                  settings.splice ? FUSE_BUF_SPLICE_MOVE : FUSE_BUF_NO_SPLICE);
}

void pass_write_buf(fuse_req_t req, fuse_ino_t, struct fuse_bufvec *from, off_t off,
                    struct fuse_file_info *fi) {
  Count("write");
  struct fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(from));
  to.buf[0].flags = static_cast<enum fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
  to.buf[0].fd = fi->fh;
  to.buf[0].pos = off;
  const ssize_t written =
      fuse_buf_copy(&to, from, settings.splice ? FUSE_BUF_SPLICE_MOVE : FUSE_BUF_NO_SPLICE);
  if (written < 0)
    fuse_reply_err(req, -written);
  else
    fuse_reply_write(req, written);
}

void pass_flush(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi) {
  Count("flush");
  Done(req, close(dup(fi->fh)));
}

void pass_release(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi) {
  Count("release");
  Done(req, close(fi->fh));
}

void pass_fsync(fuse_req_t req, fuse_ino_t, int datasync, struct fuse_file_info *fi) {
  Count("fsync");
  Done(req, datasync ? fdatasync(fi->fh) : fsync(fi->fh));
}

void pass_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  Count("opendir");
  const int fd = open(Self(ino), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *directory = fd < 0 ? nullptr : fdopendir(fd);
  if (directory == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    fuse_reply_err(req, error);
    return;
  }
  fi->fh = reinterpret_cast<uint64_t>(directory);
  if (fuse_reply_open(req, fi) != 0) closedir(directory);
}

/** Lists a directory from an offset on, with the attributes of each entry if `plus`. */
void List(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
          struct fuse_file_info *fi, bool plus) {
  DIR *directory = reinterpret_cast<DIR *>(fi->fh);
  const std::unique_ptr<char[]> buffer(new char[size]);
  size_t used = 0;
  seekdir(directory, off);
  while (const struct dirent *next = readdir(directory)) {
    struct fuse_entry_param entry = {};
    entry.attr.st_ino = next->d_ino;
    entry.attr.st_mode = DTTOIF(next->d_type);
    const bool dots = strcmp(next->d_name, ".") == 0 || strcmp(next->d_name, "..") == 0;
    if (plus && !dots && Find(ino, next->d_name, &entry) != 0) continue;
    const size_t length =
        plus ? fuse_add_direntry_plus(req, &buffer[used], size - used, next->d_name, &entry,
                                      next->d_off)
             : fuse_add_direntry(req, &buffer[used], size - used, next->d_name, &entry.attr,
                                 next->d_off);
    if (length > size - used) {
      if (entry.ino != 0) Release(entry.ino, 1);
      break;
    }
    used += length;
  }
  fuse_reply_buf(req, buffer.get(), used);
}

void pass_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                  struct fuse_file_info *fi) {
  Count("readdir");
  List(req, ino, size, off, fi, false);
}

void pass_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                      struct fuse_file_info *fi) {
  Count("readdirplus");
  List(req, ino, size, off, fi, true);
}

void pass_releasedir(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi) {
  Count("releasedir");
  Done(req, closedir(reinterpret_cast<DIR *>(fi->fh)));
}

void pass_fsyncdir(fuse_req_t req, fuse_ino_t, int datasync, struct fuse_file_info *fi) {
  Count("fsyncdir");
  const int fd = dirfd(reinterpret_cast<DIR *>(fi->fh));
  Done(req, datasync ? fdatasync(fd) : fsync(fd));
}

void pass_statfs(fuse_req_t req, fuse_ino_t ino) {
  Count("statfs");
  struct statvfs info;
  if (fstatvfs(Of(ino).fd, &info) != 0)
    fuse_reply_err(req, errno);
  else
    fuse_reply_statfs(req, &info);
}

void pass_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                   size_t size, int flags) {
  Count("setxattr");
  Done(req, setxattr(Self(ino), name, value, size, flags));
}

/** Replies with an attribute's value or a list of names, or only with the size of it. */
void Attribute(fuse_req_t req, ssize_t size, const char *value, size_t room) {
  if (size < 0)
    fuse_reply_err(req, errno);
  else if (room == 0)
    fuse_reply_xattr(req, size);
  else
    fuse_reply_buf(req, value, size);
}

void pass_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size) {
  Count("getxattr");
  const std::unique_ptr<char[]> value(new char[size + 1]);
  Attribute(req, getxattr(Self(ino), name, value.get(), size), value.get(), size);
}

void pass_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  Count("listxattr");
  const std::unique_ptr<char[]> names(new char[size + 1]);
  Attribute(req, listxattr(Self(ino), names.get(), size), names.get(), size);
}

void pass_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name) {
  Count("removexattr");
  Done(req, removexattr(Self(ino), name));
}

void pass_access(fuse_req_t req, fuse_ino_t ino, int mask) {
  Count("access");
  Done(req, access(Self(ino), mask));
}

void pass_getlk(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi, struct flock *lock) {
  Count("getlk");
  lock->l_pid = 0;
  if (fcntl(fi->fh, F_OFD_GETLK, lock) != 0)
    fuse_reply_err(req, errno);
  else
    fuse_reply_lock(req, lock);
}

/**
 * Tries until the lock is there or the caller is interrupted. Replies. A single thread
 * cannot wait: it would never read the request that frees the lock.
 */
template <typename Try>
void Lock(fuse_req_t req, bool sleep, Try attempt) {
  sleep = sleep && settings.threads > 1;
  while (attempt() != 0) {
    if (!sleep || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EACCES)) {
      fuse_reply_err(req, errno);
      return;
    }
    if (fuse_req_interrupted(req)) {
      fuse_reply_err(req, EINTR);
      return;
    }
    usleep(1000);
  }
  fuse_reply_err(req, 0);
}

void pass_setlk(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi, struct flock *lock,
                int sleep) {
  Count(sleep ? "setlkw" : "setlk");
  lock->l_pid = 0;
  Lock(req, sleep, [&] { return fcntl(fi->fh, F_OFD_SETLK, lock); });
}

void pass_flock(fuse_req_t req, fuse_ino_t, struct fuse_file_info *fi, int operation) {
  const bool sleep = !(operation & LOCK_NB);
  Count(sleep ? "setlkw" : "setlk");
  Lock(req, sleep, [&] { return flock(fi->fh, operation | LOCK_NB); });
}

void pass_bmap(fuse_req_t req, fuse_ino_t, size_t, uint64_t) {
  Count("bmap");
  fuse_reply_err(req, ENOSYS);
}

void pass_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned command, void *,
                struct fuse_file_info *, unsigned, const void *, size_t, size_t) {
  Count("ioctl");
  if (command != kRetrieve) {
    fuse_reply_err(req, ENOTTY);
    return;
  }
  const int result = fuse_lowlevel_notify_retrieve(session, ino, 4096, 0, nullptr);
  if (result != 0)
    fuse_reply_err(req, -result);
  else
    fuse_reply_ioctl(req, 0, nullptr, 0);
}

void pass_retrieve_reply(fuse_req_t req, void *, fuse_ino_t, off_t, struct fuse_bufvec *) {
  Count("notify_reply");
  fuse_reply_none(req);
}

void pass_poll(fuse_req_t req, fuse_ino_t, struct fuse_file_info *,
               struct fuse_pollhandle *handle) {
  Count("poll");
  if (handle != nullptr) fuse_pollhandle_destroy(handle);
  fuse_reply_poll(req, POLLIN | POLLOUT);
}

void pass_fallocate(fuse_req_t req, fuse_ino_t, int mode, off_t offset, off_t length,
                    struct fuse_file_info *fi) {
  Count("fallocate");
  Done(req, fallocate(fi->fh, mode, offset, length));
}

void pass_copy_file_range(fuse_req_t req, fuse_ino_t, off_t from, struct fuse_file_info *in,
                          fuse_ino_t, off_t to, struct fuse_file_info *out, size_t length,
                          int flags) {
  Count("copy_file_range");
  const ssize_t copied = copy_file_range(in->fh, &from, out->fh, &to, length, flags);
  if (copied < 0)
    fuse_reply_err(req, errno);
  else
    fuse_reply_write(req, copied);
}

void pass_lseek(fuse_req_t req, fuse_ino_t, off_t offset, int whence,
                struct fuse_file_info *fi) {
  Count("lseek");
  const off_t found = lseek(fi->fh, offset, whence);
  if (found < 0)
    fuse_reply_err(req, errno);
  else
    fuse_reply_lseek(req, found);
}

struct fuse_lowlevel_ops Operations() {
  struct fuse_lowlevel_ops operations = {};
  operations.init = pass_init;
  operations.destroy = pass_destroy;
  operations.lookup = pass_lookup;
  operations.forget = pass_forget;
  operations.forget_multi = pass_forget_multi;
  operations.getattr = pass_getattr;
  operations.setattr = pass_setattr;
  operations.readlink = pass_readlink;
  operations.mknod = pass_mknod;
  operations.mkdir = pass_mkdir;
  operations.symlink = pass_symlink;
  operations.link = pass_link;
  operations.unlink = pass_unlink;
  operations.rmdir = pass_rmdir;
  operations.rename = pass_rename;
  operations.create = pass_create;
  operations.open = pass_open;
  operations.read = pass_read;
  operations.write_buf = pass_write_buf;
  operations.flush = pass_flush;
  operations.release = pass_release;
  operations.fsync = pass_fsync;
  operations.opendir = pass_opendir;
  operations.readdir = pass_readdir;
  operations.readdirplus = pass_readdirplus;
  operations.releasedir = pass_releasedir;
  operations.fsyncdir = pass_fsyncdir;
  operations.statfs = pass_statfs;
  operations.setxattr = pass_setxattr;
  operations.getxattr = pass_getxattr;
  operations.listxattr = pass_listxattr;
  operations.removexattr = pass_removexattr;
  operations.access = pass_access;
  operations.getlk = pass_getlk;
  operations.setlk = pass_setlk;
  operations.flock = pass_flock;
  operations.bmap = pass_bmap;
  operations.ioctl = pass_ioctl;
  operations.retrieve_reply = pass_retrieve_reply;
  operations.poll = pass_poll;
  operations.fallocate = pass_fallocate;
  operations.copy_file_range = pass_copy_file_range;
  operations.lseek = pass_lseek;
  return operations;
}

int Fail(const std::string &what) {
  fprintf(stderr, "passfs: %s\n", what.c_str());
  return 1;
}

bool WriteCounts() {
  if (settings.counts.empty()) return true;
  FILE *file = fopen(settings.counts.c_str(), "w");
  if (file == nullptr) return false;
  for (const auto &row : counts)
    fprintf(file, "%s %llu\n", row.first.c_str(), static_cast<unsigned long long>(row.second));
  return fclose(file) == 0;
}

int Serve(const char *directory, const char *mountpoint) {
  root.fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root.fd < 0) return Fail(std::string(directory) + ": " + strerror(errno));
  snprintf(root.self, sizeof(root.self), "/proc/self/fd/%d", root.fd);
  umask(0);  // the kernel has applied the caller's
  struct fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  const char *checked = "fsname=passfs,allow_other,default_permissions";
  for (const char *argument :
       {"passfs", "-o", settings.checked ? checked : "fsname=passfs"})
    fuse_opt_add_arg(&arguments, argument);
  const struct fuse_lowlevel_ops operations = Operations();
  session = fuse_session_new(&arguments, &operations, sizeof(operations), nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr || fuse_set_signal_handlers(session) != 0)
    return Fail("no session");
  int result = fuse_session_mount(session, mountpoint);
  if (result != 0) return Fail(std::string("cannot mount on ") + mountpoint);
  if (settings.threads == 1) {
    result = fuse_session_loop(session);
  } else {
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, settings.threads);
    fuse_loop_cfg_set_idle_threads(config, settings.threads);
    result = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
  }
  fuse_session_unmount(session);
  fuse_remove_signal_handlers(session);
  fuse_session_destroy(session);
  if (!WriteCounts()) return Fail("cannot write " + settings.counts);
  return result < 0 ? 1 : 0;  // a signal's number means success
}

}  // namespace

int main(int argc, char **argv) {
  const char *operands[2];
  int given = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "-h" || option == "--help") {
      fputs(kUsage, stdout);
      return 0;
    } else if (option == "--optimised") {
      settings.writeback = settings.splice = true;
    } else if (option == "--unchecked") {
      settings.checked = false;
    } else if (option == "--writeback") {
      settings.writeback = true;
    } else if (option == "--threads" && i + 1 < argc) {
      settings.threads = atoi(argv[++i]);
    } else if (option == "--timeout" && i + 1 < argc) {
      settings.timeout = atof(argv[++i]);
    } else if (option == "--counts" && i + 1 < argc) {
      settings.counts = argv[++i];
    } else if (option[0] != '-' && given < 2) {
      operands[given++] = argv[i];
    } else {
      fputs(kUsage, stderr);
      return 2;
    }
  }
  if (given != 2) {
    fputs(kUsage, stderr);
    return 2;
  }
  if (settings.threads < 1) settings.threads = settings.splice ? 10 : 1;
  return Serve(operands[0], operands[1]);
}
