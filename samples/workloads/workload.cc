/**
 * Makes an exact number of system calls on a file system and prints their number in JSON.
 * It makes no others there: no getcwd, no stat of a path before it opens it.
 *
 * With kernel caching off, each call makes one LOOKUP for each component of the path
 * below the mount point and then
 *
 *   stat       1 GETATTR
 *   open       1 OPEN, 1 RELEASE
 *   read       1 READ of one page, each time the next one; each pass over the file's
 *              pages opens it again (OPEN, RELEASE, LOOKUPs)
 *   readdir    1 OPENDIR, 1 RELEASEDIR, and 1 READDIR for each `getdents64` in the output
 *   readlink   1 READLINK
 *   getxattr   1 GETXATTR
 *   listxattr  1 LISTXATTR
 *   statfs     1 STATFS
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

static const char kUsage[] =
    "Usage: workload OPERATION COUNT PATH…       COUNT calls, the paths in turn\n"
    "       workload mixed [--processes N] [--few] TREE\n"
    "                                            prime numbers of each operation in each "
    "of N\n"
    "                                            processes (default 8, at most 13), in a "
    "tree\n"
    "                                            made by make_tree, each in its own "
    "directory;\n"
    "                                            --few: a sixth, for an emulator\n"
    "Operations: stat open read readdir readlink getxattr listxattr statfs\n";

enum Call {
  kStat,
  kOpen,
  kRead,
  kGetdents,
  kClose,
  kReadlink,
  kGetxattr,
  kListxattr,
  kStatfs,
  kNumCalls
};
static const char *const kCallNames[kNumCalls] = {"stat",       "open",      "read",
                                                  "getdents64", "close",     "readlink",
                                                  "getxattr",   "listxattr", "statfs"};

/** Counts of a process's system calls, in memory that the processes share. */
struct Tally {
  struct {
    uint64_t count, errors, min_ns, max_ns, sum_ns;
  } calls[kNumCalls];
  uint64_t errnos[134];
  uint64_t bytes_read;
  uint64_t entries_read;
};

static uint64_t Now() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// This process's durations, for the medians.
static std::vector<uint64_t> durations[kNumCalls];

/** Makes one system call, and counts and times it. */
template <class Function>
static long Do(Tally *tally, Call call, Function function) {
  const uint64_t start = Now();
  const long result = function();
  const uint64_t ns = Now() - start;
  const int error = errno;
  auto &of_call = tally->calls[call];
  if (of_call.count++ == 0 || ns < of_call.min_ns) of_call.min_ns = ns;
  if (ns > of_call.max_ns) of_call.max_ns = ns;
  of_call.sum_ns += ns;
  durations[call].push_back(ns);
  if (result < 0) {
    ++of_call.errors;
    if (error < 134) ++tally->errnos[error];
  }
  return result;
}

typedef void (*Operation)(Tally *, const char *);

static void Stat(Tally *tally, const char *path) {
  struct stat info;
  Do(tally, kStat, [&] { return lstat(path, &info); });
}

static void Open(Tally *tally, const char *path) {
  const int fd = Do(tally, kOpen, [&] { return open(path, O_RDONLY); });
  if (fd >= 0) Do(tally, kClose, [&] { return close(fd); });
}

static void Readdir(Tally *tally, const char *path) {
  const int fd = Do(tally, kOpen, [&] { return open(path, O_RDONLY | O_DIRECTORY); });
  if (fd < 0) return;
  // As large as the C library's: the reply to one READDIR fits into it.
  static char buffer[32768];
  long size;
  while ((size = Do(tally, kGetdents, [&] {
            return syscall(SYS_getdents64, fd, buffer, sizeof(buffer));
          })) > 0) {
    for (long i = 0; i < size; ++tally->entries_read) {
      uint16_t reclen;
      memcpy(&reclen, buffer + i + 16, sizeof(reclen));
      i += reclen;
    }
  }
  Do(tally, kClose, [&] { return close(fd); });
}

static void Readlink(Tally *tally, const char *path) {
  char target[4096];
  Do(tally, kReadlink, [&] { return readlink(path, target, sizeof(target)); });
}

static void Getxattr(Tally *tally, const char *path) {
  char value[256];
  Do(tally, kGetxattr, [&] { return lgetxattr(path, "user.inode", value, sizeof(value)); });
}

static void Listxattr(Tally *tally, const char *path) {
  char names[4096];
  Do(tally, kListxattr, [&] { return llistxattr(path, names, sizeof(names)); });
}

static void Statfs(Tally *tally, const char *path) {
  struct statfs info;
  Do(tally, kStatfs, [&] { return statfs(path, &info); });
}

/** Makes COUNT reads of one page each, minus one for each open that fails. */
static void Read(Tally *tally, uint64_t count, const std::vector<std::string> &paths) {
  char page[4096];
  size_t next_path = 0;
  while (count > 0) {
    const char *path = paths[next_path++ % paths.size()].c_str();
    const int fd = Do(tally, kOpen, [&] { return open(path, O_RDONLY); });
    if (fd < 0) {
      --count;  // the read that would have followed
      continue;
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);  // no read-ahead
    for (off_t offset = 0; count > 0; offset += sizeof(page)) {
      --count;
      const long size =
          Do(tally, kRead, [&] { return pread(fd, page, sizeof(page), offset); });
      if (size > 0) tally->bytes_read += size;
      if (size >= 0 && size < static_cast<long>(sizeof(page))) break;  // end of file
    }
    Do(tally, kClose, [&] { return close(fd); });
  }
}

/** Prints JSON, with medians of this process's own calls. */
static void Print(const std::string &workload, int processes, const Tally &tally) {
  printf("{\"workload\": \"%s\", \"processes\": %d, \"calls\": {", workload.c_str(),
         processes);
  const char *separator = "";
  for (int i = 0; i < kNumCalls; ++i) {
    const auto &of_call = tally.calls[i];
    if (of_call.count == 0) continue;
    printf(
        "%s\"%s\": {\"count\": %llu, \"errors\": %llu, \"min_ns\": %llu, \"max_ns\": %llu, "
        "\"sum_ns\": %llu",
        separator, kCallNames[i], static_cast<unsigned long long>(of_call.count),
        static_cast<unsigned long long>(of_call.errors),
        static_cast<unsigned long long>(of_call.min_ns),
        static_cast<unsigned long long>(of_call.max_ns),
        static_cast<unsigned long long>(of_call.sum_ns));
    if (!durations[i].empty()) {
      auto middle = durations[i].begin() + durations[i].size() / 2;
      std::nth_element(durations[i].begin(), middle, durations[i].end());
      printf(", \"median_ns\": %llu", static_cast<unsigned long long>(*middle));
    }
    printf("}");
    separator = ", ";
  }
  printf("}, \"errors\": {");
  separator = "";
  for (int i = 0; i < 134; ++i) {
    if (tally.errnos[i] == 0) continue;
    printf("%s\"%s\": %llu", separator, strerrorname_np(i),
           static_cast<unsigned long long>(tally.errnos[i]));
    separator = ", ";
  }
  printf("}, \"bytes_read\": %llu, \"entries_read\": %llu}\n",
         static_cast<unsigned long long>(tally.bytes_read),
         static_cast<unsigned long long>(tally.entries_read));
}

[[noreturn]] static void Usage() {
  fputs(kUsage, stderr);
  exit(2);
}

static long Number(const char *text, long most) {
  char *end;
  const long number = strtol(text, &end, 10);
  if (end == text || *end != '\0' || number < 1 || number > most) Usage();
  return number;
}

static const struct {
  const char *name;
  Operation operation;
} kOperations[] = {{"stat", Stat},         {"open", Open},         {"readdir", Readdir},
                   {"readlink", Readlink}, {"getxattr", Getxattr}, {"listxattr", Listxattr},
                   {"statfs", Statfs}};

static void Run(Tally *tally, const std::string &name, uint64_t count,
                const std::vector<std::string> &paths) {
  if (name == "read") return Read(tally, count, paths);
  for (const auto &known : kOperations) {
    if (name != known.name) continue;
    for (uint64_t i = 0; i < count; ++i)
      known.operation(tally, paths[i % paths.size()].c_str());
    return;
  }
  Usage();
}

/** Does one process's part of `mixed`, in its own directory. */
static void Mixed(Tally *tally, const std::string &directory, bool few) {
  std::vector<std::string> files, links;
  char name[32];
  for (int i = 0; i < 101; ++i) {
    snprintf(name, sizeof(name), "/file-%03d", i);
    files.push_back(directory + name);
  }
  for (int i = 0; i < 31; ++i) {
    snprintf(name, sizeof(name), "/link-%02d", i);
    links.push_back(directory + name);
  }
  Run(tally, "stat", few ? 31 : 211, files);
  Run(tally, "readdir", few ? 3 : 23, {directory});
  Run(tally, "open", few ? 17 : 109, files);
  Run(tally, "read", few ? 19 : 89, {directory + "/pages"});
  Run(tally, "readlink", few ? 13 : 61, links);
  Run(tally, "getxattr", few ? 11 : 43, files);
  Run(tally, "listxattr", few ? 7 : 37, files);
  Run(tally, "statfs", few ? 5 : 17, {directory});
}

static void Add(const Tally &of_process, Tally *sum) {
  for (int i = 0; i < kNumCalls; ++i) {
    const auto &from = of_process.calls[i];
    auto &to = sum->calls[i];
    if (from.count == 0) continue;
    if (to.count == 0 || from.min_ns < to.min_ns) to.min_ns = from.min_ns;
    if (from.max_ns > to.max_ns) to.max_ns = from.max_ns;
    to.count += from.count;
    to.errors += from.errors;
    to.sum_ns += from.sum_ns;
  }
  for (int i = 0; i < 134; ++i) sum->errnos[i] += of_process.errnos[i];
  sum->bytes_read += of_process.bytes_read;
  sum->entries_read += of_process.entries_read;
}

static int MixedMain(int processes, bool few, const std::string &tree) {
  struct Shared {
    std::atomic<int> ready;
    Tally tallies[13];
  };
  void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    perror("workload: mmap");
    return 1;
  }
  auto shared = new (memory) Shared();
  for (int i = 0; i < processes; ++i) {
    const pid_t pid = fork();
    if (pid < 0) {
      perror("workload: fork");
      return 1;
    }
    if (pid > 0) continue;
    // Wait until all processes are ready.
    ++shared->ready;
    while (shared->ready < processes) usleep(100);
    char directory[32];
    snprintf(directory, sizeof(directory), "/dir-%02d", i);
    Mixed(&shared->tallies[i], tree + directory, few);
    _exit(0);
  }
  int status = 0;
  for (int i = 0; i < processes; ++i) {
    int of_process;
    if (wait(&of_process) < 0 || of_process != 0) status = 1;
  }
  Tally sum = {};
  for (const Tally &tally : shared->tallies) Add(tally, &sum);
  Print("mixed", processes, sum);
  return status;
}

int main(int argc, char **argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) Usage();
  if (arguments[0] == "mixed") {
    int processes = 8;
    bool few = false;
    for (size_t i = 1; i + 1 < arguments.size(); ++i) {
      if (arguments[i] == "--few") few = true;
      else if (arguments[i] == "--processes") processes = Number(argv[++i + 1], 13);
      else Usage();
    }
    if (arguments.back().compare(0, 2, "--") == 0) Usage();
    return MixedMain(processes, few, arguments.back());
  }
  if (arguments.size() < 3) Usage();
  static Tally tally;
  const uint64_t count = Number(argv[2], 1000000000);
  Run(&tally, arguments[0], count, {arguments.begin() + 2, arguments.end()});
  Print(arguments[0], 1, tally);
}
