/* A FUSE file system with settable faults, to find out whether `fusetools why` names them.
 *
 *   faultfs [--OPERATION=sleep|spin|lock|child:MICROSECONDS[:PREFIX]]... [--attr=S] [--entry=S] [--negative=S]
 *           [--direct] [--background=N] [--fail=OPERATION:ERRNO] [libfuse's options] MOUNTPOINT
 *
 * It serves directories /d0 … /d9 and /slow, each with files f0 … f99 of 8 MiB of zeros; what is
 * written is dropped. A fault holds for operations on paths that begin with PREFIX. `lock` sleeps
 * with one mutex held, `child` runs a program. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fuse.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZE (8 << 20)
#define FILES 100

struct fault {
  const char *operation;
  char how[8];
  unsigned us;
  char prefix[64];
};
static struct fault faults[16];
static int n_faults, direct, background, fail_errno;
static char fail_operation[32];
static double attr = 1, entry = 1, negative = 0;
static pthread_mutex_t the_mutex = PTHREAD_MUTEX_INITIALIZER;

static void __attribute__((noinline)) injected_sleep(unsigned us) { usleep(us); }

static void __attribute__((noinline)) injected_spin(unsigned us) {
  struct timespec now, begin;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  while ((now.tv_sec - begin.tv_sec) * 1e6 + (now.tv_nsec - begin.tv_nsec) / 1e3 < us);
}

static void __attribute__((noinline)) take_lock(unsigned us) {
  pthread_mutex_lock(&the_mutex);
  injected_sleep(us);
  pthread_mutex_unlock(&the_mutex);
}

static void __attribute__((noinline)) run_child(void) {
  char line[16];
  FILE *child = popen("sleep 0.005; echo done", "r");
  if (!child) return;
  while (fgets(line, sizeof line, child)) continue;
  pclose(child);
}

static void fault(const char *operation, const char *path) {
  for (int i = 0; i < n_faults; i++) {
    const struct fault *f = &faults[i];
    if (strcmp(f->operation, operation) || strncmp(path, f->prefix, strlen(f->prefix))) continue;
    if (!strcmp(f->how, "sleep")) injected_sleep(f->us);
    if (!strcmp(f->how, "spin")) injected_spin(f->us);
    if (!strcmp(f->how, "lock")) take_lock(f->us);
    if (!strcmp(f->how, "child")) run_child();
  }
}

static int failed(const char *operation) {
  return strcmp(operation, fail_operation) ? 0 : -fail_errno;
}

/* 0: nothing; 1: a directory; 2: a file. */
static int kind(const char *path) {
  int number, end = 0;
  if (!strcmp(path, "/")) return 1;
  const char *rest;
  if (!strncmp(path, "/slow", 5)) rest = path + 5;
  else if (path[1] == 'd' && path[2] >= '0' && path[2] <= '9') rest = path + 3;
  else return 0;
  if (!*rest) return 1;
  return sscanf(rest, "/f%d%n", &number, &end) == 1 && !rest[end] && number < FILES ? 2 : 0;
}

static int m_getattr(const char *path, struct stat *st, struct fuse_file_info *fi) {
  (void)fi;
  fault("getattr", path);
  memset(st, 0, sizeof *st);
  int of = kind(path);
  if (!of) return -ENOENT;
  st->st_mode = of == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
  st->st_nlink = 1;
  st->st_size = of == 1 ? 0 : SIZE;
  return failed("getattr");
}

static int m_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
                     struct fuse_file_info *fi, enum fuse_readdir_flags flags) {
  (void)offset, (void)fi, (void)flags;
  char name[32];
  struct stat st = {.st_mode = S_IFDIR};
  fault("readdir", path);
  if (!strcmp(path, "/")) {
    for (int i = 0; i < 10; i++) {
      snprintf(name, sizeof name, "d%d", i);
      fill(buffer, name, &st, 0, 0);
    }
    fill(buffer, "slow", &st, 0, 0);
    return 0;
  }
  st.st_mode = S_IFREG;
  for (int i = 0; i < FILES; i++) {
    snprintf(name, sizeof name, "f%d", i);
    fill(buffer, name, &st, 0, 0);
  }
  return 0;
}

static int m_open(const char *path, struct fuse_file_info *fi) {
  fault("open", path);
  fi->direct_io = direct;
  return failed("open");
}

static int m_read(const char *path, char *buffer, size_t size, off_t offset,
                  struct fuse_file_info *fi) {
  (void)fi;
  fault("read", path);
  if (failed("read")) return failed("read");
  if (offset >= SIZE) return 0;
  if (size > (size_t)(SIZE - offset)) size = SIZE - offset;
  memset(buffer, 0, size);
  return size;
}

static int m_write(const char *path, const char *buffer, size_t size, off_t offset,
                   struct fuse_file_info *fi) {
  (void)buffer, (void)offset, (void)fi;
  fault("write", path);
  return failed("write") ? failed("write") : (int)size;
}

static int m_truncate(const char *path, off_t size, struct fuse_file_info *fi) {
  (void)path, (void)size, (void)fi;
  return 0;
}

static int m_getxattr(const char *path, const char *name, char *value, size_t size) {
  (void)name, (void)value, (void)size;
  fault("getxattr", path);
  return -ENODATA;
}

static void *m_init(struct fuse_conn_info *conn, struct fuse_config *config) {
  if (background) conn->max_background = background;
  config->attr_timeout = attr;
  config->entry_timeout = entry;
  config->negative_timeout = negative;
  config->kernel_cache = 0;
  return NULL;
}

static const struct fuse_operations operations = {
    .init = m_init,
    .getattr = m_getattr,
    .readdir = m_readdir,
    .open = m_open,
    .read = m_read,
    .write = m_write,
    .truncate = m_truncate,
    .getxattr = m_getxattr,
};

int main(int argc, char **argv) {
  char *rest[64] = {argv[0]};
  int n = 1;
  for (int i = 1; i < argc && n < 63; i++) {
    char operation[32];
    struct fault f = {0};
    if (sscanf(argv[i], "--attr=%lf", &attr) == 1 || sscanf(argv[i], "--entry=%lf", &entry) == 1 ||
        sscanf(argv[i], "--negative=%lf", &negative) == 1 ||
        sscanf(argv[i], "--background=%d", &background) == 1)
      continue;
    if (sscanf(argv[i], "--fail=%31[a-z]:%d", fail_operation, &fail_errno) == 2) continue;
    if (!strcmp(argv[i], "--direct")) direct = 1;
    else if (sscanf(argv[i], "--%31[a-z]=%7[a-z]:%u:%63s", operation, f.how, &f.us, f.prefix) >= 3 &&
             n_faults < 16) {
      f.operation = strdup(operation);
      faults[n_faults++] = f;
    } else rest[n++] = argv[i];
  }
  return fuse_main(n, rest, &operations, NULL);
}
