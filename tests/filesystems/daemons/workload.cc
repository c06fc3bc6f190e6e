/**
 * Makes prime numbers of calls on a file system, and says in JSON what came of them:
 * {"mkdir": {"calls": 7, "errors": {}}, …}.
 *
 *   workload read GIVEN            reads the files of a directory
 *   workload write DIRECTORY       makes that directory, writes in it, and removes what it can
 *   workload slow DIRECTORY SWITCH reads the files there while the file SWITCH exists
 *   … --settled FILE               afterwards waits until the number in that file, of fusectl's
 *                                  connections/N/waiting, is 0: all requests have ended
 *
 * What a file system cannot do is an error in the output; the workload goes on.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

static const int kPage = 4096;

struct Outcome {
  int calls = 0;
  std::map<std::string, int> errors;
};
static std::map<std::string, Outcome> g_outcomes;

// Counts a call and its error; returns its result.
static long Did(const char *call, long result) {
  Outcome &outcome = g_outcomes[call];
  ++outcome.calls;
  if (result < 0) ++outcome.errors[strerrorname_np(errno)];
  return result;
}

static std::vector<std::string> Names(const std::string &directory) {
  std::vector<std::string> names;
  const int fd = Did("opendir", open(directory.c_str(), O_RDONLY | O_DIRECTORY));
  if (fd < 0) return names;
  alignas(8) char buffer[32768];
  long size;
  while ((size = Did("getdents64", syscall(SYS_getdents64, fd, buffer, sizeof buffer))) > 0)
    for (long at = 0; at < size;) {
      const dirent64 *entry = reinterpret_cast<dirent64 *>(buffer + at);
      at += entry->d_reclen;
      if (entry->d_name[0] != '.') names.push_back(directory + "/" + entry->d_name);
    }
  close(fd);
  std::sort(names.begin(), names.end());
  return names;
}

static void Read(const std::string &given) {
  alignas(kPage) static char page[kPage];
  const int kDirect = 43, kMapped = 3, kLocks = 37, kStatfs = 41, kXattrs = 29, kLinks = 31;
  std::vector<std::string> files, links;
  for (const std::string &name : Names(given)) {
    struct stat about;
    if (Did("lstat", lstat(name.c_str(), &about))) continue;
    if (S_ISREG(about.st_mode)) files.push_back(name);
    if (S_ISLNK(about.st_mode)) links.push_back(name);
  }
  if (files.empty()) return;
  for (const std::string &name : files) {
    const int fd = Did("open", open(name.c_str(), O_RDONLY));
    if (fd < 0) continue;
    while (Did("read", read(fd, page, sizeof page)) > 0) {
    }
    close(fd);
  }
  const int direct = Did("open O_DIRECT", open(files[0].c_str(), O_RDONLY | O_DIRECT));
  if (direct >= 0) {
    for (int i = 0; i < kDirect; ++i) Did("pread64", pread(direct, page, kPage, 0));
    close(direct);
  }
  for (int i = 0; i < kMapped; ++i) {
    const int fd = Did("open", open(files[i % files.size()].c_str(), O_RDONLY));
    if (fd < 0) continue;
    void *map = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
    Did("mmap", map == MAP_FAILED ? -1 : 0);
    if (map != MAP_FAILED) {
      page[0] = *static_cast<volatile char *>(map);
      munmap(map, kPage);
    }
    close(fd);
  }
  const int locked = Did("open", open(files[0].c_str(), O_RDONLY));
  for (int i = 0; i < kLocks; ++i) Did("flock", flock(locked, i % 2 ? LOCK_UN : LOCK_EX));
  close(locked);
  struct statfs about;
  for (int i = 0; i < kStatfs; ++i) Did("statfs", statfs(given.c_str(), &about));
  for (int i = 0; i < kXattrs; ++i)
    Did("getxattr", getxattr(files[0].c_str(), "user.given", page, sizeof page));
  for (int i = 0; i < kLinks && !links.empty(); ++i)
    Did("readlink", readlink(links[i % links.size()].c_str(), page, sizeof page));
}

static void Write(const std::string &top) {
  alignas(kPage) static char page[kPage];
  memset(page, 'x', sizeof page);
  const int kDirectories = 7, kFiles = 23, kWrites = 101, kSyncs = 13, kRenames = 11;
  const int kUnlinks = 17, kSymlinks = 5, kLinks = 3, kXattrs = 19, kTruncates = 31, kMapped = 2;
  const auto path = [&](const char *kind, int i) { return top + "/" + kind + std::to_string(i); };
  Did("mkdir", mkdir(top.c_str(), 0755));
  for (int i = 1; i < kDirectories; ++i) Did("mkdir", mkdir(path("dir-", i).c_str(), 0755));
  for (int i = 0; i < kFiles; ++i) {
    const int fd = Did("creat", creat(path("file-", i).c_str(), 0644));
    if (fd < 0) continue;
    if (i == 0) {
      for (int j = 0; j < kWrites; ++j) Did("pwrite64", pwrite(fd, page, kPage - 1, j * kPage));
      for (int j = 0; j < kSyncs; ++j) {
        Did("pwrite64", pwrite(fd, page, 1, j));
        Did("fsync", fsync(fd));
      }
      for (int j = 0; j < kTruncates; ++j) Did("ftruncate", ftruncate(fd, 50000 + j));
    }
    close(fd);
  }
  for (int i = 0; i < kXattrs; ++i)
    Did("setxattr", setxattr(path("file-", 1).c_str(), "user.made", page, 1 + i, 0));
  for (int i = 0; i < kMapped; ++i) {
    const int fd = Did("open", open(path("file-", 0).c_str(), O_RDWR));
    if (fd < 0) continue;
    void *map = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    Did("mmap", map == MAP_FAILED ? -1 : 0);
    if (map != MAP_FAILED) {
      static_cast<volatile char *>(map)[i] = 'y';
      Did("msync", msync(map, kPage, MS_SYNC));
      munmap(map, kPage);
    }
    close(fd);
  }
  for (int i = 0; i < kRenames; ++i)
    Did("rename", rename(path("file-", 2 + i).c_str(), path("renamed-", i).c_str()));
  for (int i = 0; i < kSymlinks; ++i) Did("symlink", symlink("file-0", path("link-", i).c_str()));
  for (int i = 0; i < kLinks; ++i)
    Did("link", link(path("file-", 0).c_str(), path("hard-", i).c_str()));
  Names(top);
  for (int i = 0; i < kUnlinks; ++i)
    Did("unlink", unlink((i < 10 ? path("renamed-", i) : path("file-", i + 3)).c_str()));
  for (int i = 1; i < kDirectories; ++i) Did("rmdir", rmdir(path("dir-", i).c_str()));
}

static void Slow(const std::string &directory, const char *on) {
  alignas(kPage) static char page[kPage];
  close(creat(on, 0644));
  for (const std::string &name : Names(directory)) {
    const int fd = Did("open", open(name.c_str(), O_RDONLY));
    if (fd < 0) continue;
    Did("read", read(fd, page, sizeof page));
    close(fd);
  }
  unlink(on);
}

// Returns when no request of the connection is on its way: releases go on after close(2).
static void Settle(const char *waiting) {
  char text[32];
  for (;;) {
    const int fd = open(waiting, O_RDONLY);
    const ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0) {
      perror(waiting);
      exit(2);
    }
    text[size] = 0;
    if (atoi(text) == 0) return;
    usleep(1000);
  }
}

int main(int argc, char **argv) {
  const char *settled = nullptr;
  if (argc > 3 && !strcmp(argv[argc - 2], "--settled")) {
    settled = argv[argc - 1];
    argc -= 2;
  }
  const std::string what = argc > 2 ? argv[1] : "";
  if (what == "read" && argc == 3) {
    Read(argv[2]);
  } else if (what == "write" && argc == 3) {
    Write(argv[2]);
  } else if (what == "slow" && argc == 4) {
    Slow(argv[2], argv[3]);
  } else {
    fprintf(stderr, "workload: see the comment on top of workload.cc\n");
    return 2;
  }
  // What is still in the kernel's cache is written before anything is counted.
  const int top = open(argv[2], O_RDONLY | O_DIRECTORY);
  syncfs(top);
  close(top);
  if (settled) Settle(settled);
  const char *comma = "{";
  for (const auto &[call, outcome] : g_outcomes) {
    printf("%s\"%s\": {\"calls\": %d, \"errors\": {", comma, call.c_str(), outcome.calls);
    const char *between = "";
    for (const auto &[name, count] : outcome.errors) {
      printf("%s\"%s\": %d", between, name.c_str(), count);
      between = ", ";
    }
    printf("}}");
    comma = ", ";
  }
  puts("}");
  return 0;
}
