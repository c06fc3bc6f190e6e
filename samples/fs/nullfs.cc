/**
 * A file system that does nothing: it keeps names in memory, its files are empty, and what is
 * written is gone. Its requests cost what FUSE itself costs, as in RFUSE (FAST '24). On libfuse's
 * low-level API, with one thread.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fuse3/fuse_lowlevel.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

const char kUsage[] =
    "Usage: nullfs MOUNTPOINT\n"
    "\n"
    "Serves an empty file system at MOUNTPOINT, in the foreground, until SIGTERM or an\n"
    "unmount. Names are kept in memory; files hold nothing.\n";

constexpr double kTimeout = 1;  // seconds, as libfuse's default

std::vector<mode_t> modes = {0, S_IFDIR | 0777};  // by inode; 0: there is none
std::map<std::pair<fuse_ino_t, std::string>, fuse_ino_t> names;

bool Exists(fuse_ino_t ino) { return ino < modes.size() && modes[ino] != 0; }

struct stat Attributes(fuse_ino_t ino) {
  struct stat attributes = {};
  attributes.st_ino = ino;
  attributes.st_mode = modes[ino];
  attributes.st_nlink = S_ISDIR(modes[ino]) ? 2 : 1;
  return attributes;
}

struct fuse_entry_param Entry(fuse_ino_t ino) {
  struct fuse_entry_param entry = {};
  entry.ino = ino;
  entry.attr = Attributes(ino);
  entry.attr_timeout = entry.entry_timeout = kTimeout;
  return entry;
}

/** Makes a name. Returns its inode, 0 if it is there. Numbers are not given again. */
fuse_ino_t Make(fuse_ino_t parent, const char *name, mode_t mode) {
  const auto made = names.emplace(std::make_pair(parent, name), modes.size());
  if (!made.second) return 0;
  modes.push_back(mode);
  return made.first->second;
}

void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  const auto found = names.find({parent, name});
  if (found == names.end()) {
    fuse_reply_err(req, ENOENT);
    return;
  }
  const struct fuse_entry_param entry = Entry(found->second);
  fuse_reply_entry(req, &entry);
}

void null_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *) {
  if (!Exists(ino)) {
    fuse_reply_err(req, ENOENT);
    return;
  }
  const struct stat attributes = Attributes(ino);
  fuse_reply_attr(req, &attributes, kTimeout);
}

void null_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *, int,
                  struct fuse_file_info *info) {
  null_getattr(req, ino, info);
}

void null_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                 struct fuse_file_info *info) {
  const fuse_ino_t ino = Make(parent, name, S_IFREG | (mode & 0777));
  if (ino == 0) {
    fuse_reply_err(req, EEXIST);
    return;
  }
  const struct fuse_entry_param entry = Entry(ino);
  fuse_reply_create(req, &entry, info);
}

void null_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode) {
  const fuse_ino_t ino = Make(parent, name, S_IFDIR | (mode & 0777));
  if (ino == 0) {
    fuse_reply_err(req, EEXIST);
    return;
  }
  const struct fuse_entry_param entry = Entry(ino);
  fuse_reply_entry(req, &entry);
}

void null_unlink(fuse_req_t req, fuse_ino_t parent, const char *name) {
  fuse_reply_err(req, names.erase({parent, name}) ? 0 : ENOENT);
}

void null_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name) {
  const auto found = names.find({parent, name});
  if (found == names.end()) {
    fuse_reply_err(req, ENOENT);
    return;
  }
  const auto child = names.lower_bound({found->second, ""});
  if (child != names.end() && child->first.first == found->second) {
    fuse_reply_err(req, ENOTEMPTY);
    return;
  }
  names.erase(found);
  fuse_reply_err(req, 0);
}

void null_open(fuse_req_t req, fuse_ino_t, struct fuse_file_info *info) {
  fuse_reply_open(req, info);
}

void null_read(fuse_req_t req, fuse_ino_t, size_t, off_t, struct fuse_file_info *) {
  fuse_reply_buf(req, nullptr, 0);
}

void null_write(fuse_req_t req, fuse_ino_t, const char *, size_t size, off_t,
                struct fuse_file_info *) {
  fuse_reply_write(req, size);
}

void null_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                  struct fuse_file_info *) {
  std::vector<char> buffer(size);
  size_t used = 0;
  off_t index = 0;
  for (auto at = names.lower_bound({ino, ""}); at != names.end() && at->first.first == ino;
       ++at) {
    if (++index <= offset) continue;
    const struct stat attributes = Attributes(at->second);
    const size_t needed = fuse_add_direntry(req, buffer.data() + used, size - used,
                                            at->first.second.c_str(), &attributes, index);
    if (needed > size - used) break;
    used += needed;
  }
  fuse_reply_buf(req, buffer.data(), used);
}

void null_done(fuse_req_t req, fuse_ino_t, struct fuse_file_info *) { fuse_reply_err(req, 0); }

int Fail(const std::string &what) {
  fprintf(stderr, "nullfs: %s\n", what.c_str());
  return 1;
}

int Serve(const char *mountpoint) {
  struct fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  for (const char *argument : {"nullfs", "-o", "fsname=nullfs"})
    fuse_opt_add_arg(&arguments, argument);
  struct fuse_lowlevel_ops operations = {};
  operations.lookup = null_lookup;
  operations.getattr = null_getattr;
  operations.setattr = null_setattr;
  operations.create = null_create;
  operations.mkdir = null_mkdir;
  operations.unlink = null_unlink;
  operations.rmdir = null_rmdir;
  operations.open = operations.opendir = null_open;
  operations.read = null_read;
  operations.write = null_write;
  operations.readdir = null_readdir;
  operations.flush = operations.release = operations.releasedir = null_done;
  struct fuse_session *session =
      fuse_session_new(&arguments, &operations, sizeof(operations), nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr || fuse_set_signal_handlers(session) != 0) return Fail("no session");
  if (fuse_session_mount(session, mountpoint) != 0)
    return Fail(std::string("cannot mount on ") + mountpoint);
  const int result = fuse_session_loop(session);
  fuse_session_unmount(session);
  fuse_remove_signal_handlers(session);
  fuse_session_destroy(session);
  return result < 0 ? 1 : 0;  // a signal's number means success
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2 || argv[1][0] == '-') {
    const bool asked = argc == 2 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"));
    fputs(kUsage, asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  return Serve(argv[1]);
}
