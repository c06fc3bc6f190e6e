/* A file system whose daemon asks another process about each name, and waits for the answer in read(2) or readv(2).

     askfs pipe|socket MOUNTPOINT

   The other process answers after 5 ms. All that is looked up is an empty file; nothing is cached. libfuse's high-level
   API: its threads splice requests into pipes of their own. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <signal.h>
#include <unistd.h>

static int to, from;
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

static void answer(int in, int out) {
  char byte;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (read(in, &byte, 1) == 1) {
    usleep(5000);
    if (write(out, &byte, 1) != 1) break;
  }
  _exit(0);
}

__attribute__((noinline)) int ask_in_read(void) {
  char byte;
  return read(from, &byte, 1) == 1 ? 0 : -EIO;
}

__attribute__((noinline)) int ask_in_readv(void) {
  char byte;
  struct iovec parts = {&byte, 1};
  return readv(from, &parts, 1) == 1 ? 0 : -EIO;
}

static int attributes(const char *path, struct stat *status, struct fuse_file_info *file) {
  (void)file;
  memset(status, 0, sizeof *status);
  status->st_mode = strcmp(path, "/") ? S_IFREG | 0444 : S_IFDIR | 0555;
  status->st_nlink = 1;
  if (!strcmp(path, "/")) return 0;
  pthread_mutex_lock(&asking);
  int error = write(to, "?", 1) == 1 ? 0 : -EIO;
  if (!error) error = strchr(path, 'v') ? ask_in_readv() : ask_in_read();
  pthread_mutex_unlock(&asking);
  return error;
}

static void *start(struct fuse_conn_info *connection, struct fuse_config *config) {
  (void)connection;
  config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
  return NULL;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  int there[2], back[2];
  int failed = strcmp(words[1], "pipe") ? socketpair(AF_UNIX, SOCK_STREAM, 0, there) : pipe(there) | pipe(back);
  if (failed) return 1;
  if (strcmp(words[1], "pipe")) {
    to = from = there[0];
    if (fork() == 0) answer(there[1], there[1]);
    close(there[1]);
  } else {
    to = there[1];
    from = back[0];
    if (fork() == 0) answer(there[0], back[1]);
    close(there[0]);
    close(back[1]);
  }
  struct fuse_operations calls = {.getattr = attributes, .init = start};
  char *arguments[] = {words[0], "-f", words[2], NULL};
  return fuse_main(3, arguments, &calls, NULL);
}
