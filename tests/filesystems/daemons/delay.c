/**
 * For LD_PRELOAD: opening and reading files whose path contains $DELAY_MARK takes $DELAY_MS longer
 * while the file $DELAY_SWITCH exists. Each delay is a line in $DELAY_LOG, written after it:
 *
 *   thread begin end function path
 *
 * begin and end in ns of CLOCK_MONOTONIC, the clock of fusetools' recordings.
 *
 * The thread sleeps in injected_delay() itself, by a system call of its own, so that this function
 * is the innermost frame of the stack, however stacks are taken.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* System calls of our own: the library must not call what it replaces. */
static long raw(long number, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                   : "rcx", "r11", "memory");
  return result;
}

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

__attribute__((noinline)) void injected_delay(long ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  register long r10 __asm__("r10") = (long)&t;
  long result;
  do
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_clock_nanosleep), "D"(CLOCK_MONOTONIC), "S"(0), "d"(&t), "r"(r10)
                     : "rcx", "r11", "memory");
  while (result == -EINTR);
}

static void delay(const char *function, const char *path) {
  static const char *mark, *log_path, *on;
  static long ms;
  if (!on) {
    mark = getenv("DELAY_MARK");
    log_path = getenv("DELAY_LOG");
    ms = atol(getenv("DELAY_MS") ? getenv("DELAY_MS") : "0");
    on = getenv("DELAY_SWITCH");
  }
  if (!on || !mark || !log_path || !strstr(path, mark)) return;
  if (raw(SYS_faccessat, AT_FDCWD, (long)on, F_OK, 0)) return;
  int saved = errno;
  long long begin = now();
  injected_delay(ms);
  long long end = now();
  static __thread char line[4400];  /* not on the stack, which would be deeper than a daemon's own */
  int length = snprintf(line, sizeof line, "%ld %lld %lld %s %s\n", raw(SYS_gettid, 0, 0, 0, 0),
                        begin, end, function, path);
  int log = raw(SYS_openat, AT_FDCWD, (long)log_path, O_WRONLY | O_APPEND | O_CREAT, 0666);
  if (raw(SYS_write, log, (long)line, length, 0) != length) abort();
  raw(SYS_close, log, 0, 0, 0);
  errno = saved;
}

static void delay_fd(const char *function, int fd) {
  char link[32];
  static __thread char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = raw(SYS_readlinkat, AT_FDCWD, (long)link, (long)path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = 0;
  delay(function, path);
}

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    va_list list; \
    va_start(list, flags); \
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, int) : 0; \
    va_end(list); \
    REAL(name); \
    delay(#name, path); \
    return real(path, flags, mode); \
  }
#define OPENAT(name) \
  int name(int directory, const char *path, int flags, ...) { \
    va_list list; \
    va_start(list, flags); \
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, int) : 0; \
    va_end(list); \
    REAL(name); \
    delay(#name, path); \
    return real(directory, path, flags, mode); \
  }
/* What the C library's headers call instead, with _FORTIFY_SOURCE and no mode. */
#define OPEN_2(name) \
  int name(const char *path, int flags) { \
    REAL(name); \
    delay(#name, path); \
    return real(path, flags); \
  }
#define OPENAT_2(name) \
  int name(int directory, const char *path, int flags) { \
    REAL(name); \
    delay(#name, path); \
    return real(directory, path, flags); \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
OPEN_2(__open_2)
OPEN_2(__open64_2)
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

ssize_t pread(int fd, void *data, size_t size, off_t offset) {
  REAL(pread);
  delay_fd("pread", fd);
  return real(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
  REAL(pread64);
  delay_fd("pread64", fd);
  return real(fd, data, size, offset);
}

ssize_t read(int fd, void *data, size_t size) {
  REAL(read);
  delay_fd("read", fd);
  return real(fd, data, size);
}

/* fuse-overlayfs opens by openat2, for which the C library has no function. */
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long),
       d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
  va_end(list);
  REAL(syscall);
  if (number == SYS_openat2) delay("openat2", (const char *)b);
  return real(number, a, b, c, d, e, f);
}
