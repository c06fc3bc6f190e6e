/* One process with two file systems, each of one thread:

     pairfs FIRST SECOND

   In FIRST are the files a-0 … a-9, in SECOND b-0 … b-9, with the same inodes: 2 to 11. A read in SECOND takes 5 ms.
   Nothing is cached. libfuse's low-level API. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct half {
  struct fuse_session *session;
  char letter;
};

static struct stat attributes(fuse_ino_t ino) {
  struct stat is = {.st_ino = ino, .st_nlink = 1, .st_mode = S_IFREG | 0644, .st_size = 1};
  if (ino == FUSE_ROOT_ID) is.st_mode = S_IFDIR | 0755;
  return is;
}

static void pair_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  struct half *half = fuse_req_userdata(req);
  struct fuse_entry_param entry = {0};
  if (parent != FUSE_ROOT_ID || strlen(name) != 3 || name[0] != half->letter) {
    fuse_reply_err(req, ENOENT);
    return;
  }
  entry.ino = 2 + name[2] - '0';
  entry.attr = attributes(entry.ino);
  fuse_reply_entry(req, &entry);
}

static void pair_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file) {
  struct stat is = attributes(ino);
  (void)file;
  fuse_reply_attr(req, &is, 0);
}

static void pair_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file) {
  (void)ino;
  file->direct_io = 1;
  fuse_reply_open(req, file);
}

static void pair_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file) {
  struct half *half = fuse_req_userdata(req);
  (void)ino, (void)file;
  if (half->letter == 'b' && offset == 0) usleep(5000);
  fuse_reply_buf(req, &half->letter, size && !offset);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = pair_lookup, .getattr = pair_getattr, .open = pair_open, .read = pair_read};

static void *serve(void *half) {
  fuse_session_loop(((struct half *)half)->session);
  return NULL;
}

int main(int count, char **words) {
  struct half halves[2] = {{.letter = 'a'}, {.letter = 'b'}};
  pthread_t threads[2];
  if (count != 3) return 2;
  for (int i = 0; i < 2; i++) {
    struct fuse_args args = FUSE_ARGS_INIT(1, words);
    halves[i].session = fuse_session_new(&args, &operations, sizeof operations, &halves[i]);
    if (!halves[i].session || fuse_session_mount(halves[i].session, words[1 + i])) return 1;
  }
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, serve, &halves[i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return 0;
}
