/**
 * A file system without libfuse: it speaks the protocol of /dev/fuse itself, with two threads.
 * It shows the directory SOURCE on MOUNT, with what is needed to read and write files; each of its
 * inodes is a path. Statically linked, with symbols.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kInodes = 4096, kBuffer = 1 << 18, kMaxWrite = 1 << 17 };

static int g_device;
static const char *g_mount;
static char *g_paths[kInodes + 1]; /* by inode number; never freed */
static int g_used = FUSE_ROOT_ID;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *path_of(uint64_t inode) {
  pthread_mutex_lock(&g_lock);
  const char *path = inode <= (uint64_t)g_used ? g_paths[inode] : NULL;
  pthread_mutex_unlock(&g_lock);
  return path ? path : "";
}

static void join(char *path, uint64_t parent, const char *name) {
  if (snprintf(path, 4096, "%s/%s", path_of(parent), name) >= 4096) path[0] = 0;
}

static int64_t inode_of(const char *path) {
  int64_t found = -ENFILE;
  pthread_mutex_lock(&g_lock);
  for (int i = FUSE_ROOT_ID; i <= g_used && found < 0; ++i)
    if (!strcmp(g_paths[i], path)) found = i;
  if (found < 0 && g_used < kInodes) {
    g_paths[++g_used] = strdup(path);
    found = g_used;
  }
  pthread_mutex_unlock(&g_lock);
  return found;
}

static void reply(uint64_t unique, int error, const void *data, size_t size) {
  struct fuse_out_header header = {sizeof header + (error ? 0 : size), -error, unique};
  struct iovec parts[2] = {{&header, sizeof header}, {(void *)data, error ? 0 : size}};
  (void)!writev(g_device, parts, 2); /* ENOENT: the request was interrupted */
}

static int attributes(const char *path, uint64_t inode, struct fuse_attr *out) {
  struct stat s;
  if (lstat(path, &s)) return errno;
  *out = (struct fuse_attr){.ino = inode, .size = s.st_size, .blocks = s.st_blocks,
    .atime = s.st_atime, .mtime = s.st_mtime, .ctime = s.st_ctime, .mode = s.st_mode,
    .nlink = s.st_nlink, .uid = s.st_uid, .gid = s.st_gid, .blksize = s.st_blksize};
  return 0;
}

static int entry(const char *path, struct fuse_entry_out *out) {
  memset(out, 0, sizeof *out);
  struct stat s;
  if (lstat(path, &s)) return errno;
  const int64_t inode = inode_of(path);
  if (inode < 0) return -inode;
  out->nodeid = inode;
  return attributes(path, inode, &out->attr);
}

static size_t list(const char *path, uint64_t offset, char *out, size_t size) {
  DIR *directory = opendir(path);
  if (!directory) return 0;
  size_t used = 0;
  uint64_t index = 0;
  for (struct dirent *d; (d = readdir(directory));) {
    if (index++ < offset) continue;
    const size_t length = strlen(d->d_name);
    struct fuse_dirent *into = (struct fuse_dirent *)(out + used);
    if (used + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length) > size) break;
    *into = (struct fuse_dirent){d->d_ino, index, length, d->d_type};
    memcpy(into->name, d->d_name, length);
    used += FUSE_DIRENT_SIZE(into);
  }
  closedir(directory);
  return used;
}

/* Answers one request; what a FORGET says is not needed. */
static void serve(struct fuse_in_header *in, char *out) {
  const void *arg = in + 1;
  const uint64_t unique = in->unique;
  char path[4096], other[4096];
  const char *own = path_of(in->nodeid);
  int error = 0;
  ssize_t size = 0;
  switch (in->opcode) {
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;
    case FUSE_INIT: {
      const struct fuse_init_in *init = arg;
      struct fuse_init_out *o = memset(out, 0, sizeof *o);
      o->major = FUSE_KERNEL_VERSION;
      o->minor = FUSE_KERNEL_MINOR_VERSION;
      o->max_readahead = init->max_readahead;
      o->flags = init->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_WRITEBACK_CACHE);
      o->max_write = kMaxWrite;
      o->time_gran = 1;
      return reply(unique, 0, o, sizeof *o);
    }
    case FUSE_LOOKUP:
      join(path, in->nodeid, arg);
      error = entry(path, (struct fuse_entry_out *)out);
      return reply(unique, error, out, sizeof(struct fuse_entry_out));
    case FUSE_SETATTR: {
      const struct fuse_setattr_in *set = arg;
      if (set->valid & FATTR_SIZE && truncate(own, set->size)) error = errno;
      if (set->valid & FATTR_MODE && chmod(own, set->mode)) error = errno;
      if (error) return reply(unique, error, NULL, 0);
    } /* fall through */
    case FUSE_GETATTR: {
      struct fuse_attr_out *o = memset(out, 0, sizeof *o);
      error = attributes(own, in->nodeid, &o->attr);
      return reply(unique, error, o, sizeof *o);
    }
    case FUSE_READLINK:
      size = readlink(own, out, kBuffer);
      return reply(unique, size < 0 ? errno : 0, out, size);
    case FUSE_OPEN:
    case FUSE_CREATE: {
      const int creating = in->opcode == FUSE_CREATE;
      struct fuse_entry_out *e = (struct fuse_entry_out *)out;
      struct fuse_open_out *o = (struct fuse_open_out *)(creating ? e + 1 : e);
      int flags = ((const struct fuse_open_in *)arg)->flags & ~(O_NOFOLLOW | O_DIRECT | O_APPEND);
      if ((flags & O_ACCMODE) == O_WRONLY) flags += O_RDWR - O_WRONLY; /* the cache reads, too */
      if (creating) join(path, in->nodeid, (const char *)((const struct fuse_create_in *)arg + 1));
      const int fd = open(creating ? path : own, creating ? flags | O_CREAT : flags, 0644);
      memset(o, 0, sizeof *o);
      o->fh = fd;
      if (fd < 0) error = errno;
      if (!error && creating) error = entry(path, e);
      return reply(unique, error, out, (char *)(o + 1) - out);
    }
    case FUSE_READ: {
      const struct fuse_read_in *r = arg;
      size = pread(r->fh, out, r->size, r->offset);
      return reply(unique, size < 0 ? errno : 0, out, size);
    }
    case FUSE_WRITE: {
      const struct fuse_write_in *w = arg;
      size = pwrite(w->fh, w + 1, w->size, w->offset);
      struct fuse_write_out o = {size, 0};
      return reply(unique, size < 0 ? errno : 0, &o, sizeof o);
    }
    case FUSE_FSYNC:
      error = fsync(((const struct fuse_fsync_in *)arg)->fh) ? errno : 0;
      return reply(unique, error, NULL, 0);
    case FUSE_RELEASE:
      close(((const struct fuse_release_in *)arg)->fh);
      return reply(unique, 0, NULL, 0);
    case FUSE_OPENDIR:
    case FUSE_RELEASEDIR:
      memset(out, 0, sizeof(struct fuse_open_out));
      size = in->opcode == FUSE_OPENDIR ? sizeof(struct fuse_open_out) : 0;
      return reply(unique, 0, out, size);
    case FUSE_READDIR: {
      const struct fuse_read_in *r = arg;
      return reply(unique, 0, out, list(own, r->offset, out, r->size));
    }
    case FUSE_MKDIR: {
      join(path, in->nodeid, (const char *)((const struct fuse_mkdir_in *)arg + 1));
      error = mkdir(path, ((const struct fuse_mkdir_in *)arg)->mode) ? errno : 0;
      if (!error) error = entry(path, (struct fuse_entry_out *)out);
      return reply(unique, error, out, sizeof(struct fuse_entry_out));
    }
    case FUSE_SYMLINK: {
      const char *name = arg;
      join(path, in->nodeid, name);
      error = symlink(name + strlen(name) + 1, path) ? errno : 0;
      if (!error) error = entry(path, (struct fuse_entry_out *)out);
      return reply(unique, error, out, sizeof(struct fuse_entry_out));
    }
    case FUSE_UNLINK:
    case FUSE_RMDIR:
      join(path, in->nodeid, arg);
      error = (in->opcode == FUSE_UNLINK ? unlink(path) : rmdir(path)) ? errno : 0;
      return reply(unique, error, NULL, 0);
    case FUSE_RENAME:
    case FUSE_RENAME2: {
      const int two = in->opcode == FUSE_RENAME2;
      const char *name = (const char *)arg +
        (two ? sizeof(struct fuse_rename2_in) : sizeof(struct fuse_rename_in));
      join(path, in->nodeid, name);
      join(other, *(const uint64_t *)arg, name + strlen(name) + 1);
      if (two && ((const struct fuse_rename2_in *)arg)->flags) error = EINVAL;
      if (!error && rename(path, other)) error = errno;
      if (!error) { /* the inode goes along */
        const int64_t inode = inode_of(path);
        pthread_mutex_lock(&g_lock);
        if (inode > 0) g_paths[inode] = strdup(other);
        pthread_mutex_unlock(&g_lock);
      }
      return reply(unique, error, NULL, 0);
    }
    case FUSE_STATFS: {
      struct statfs s;
      struct fuse_statfs_out *o = memset(out, 0, sizeof *o);
      if (statfs(own, &s)) return reply(unique, errno, NULL, 0);
      o->st = (struct fuse_kstatfs){.blocks = s.f_blocks, .bfree = s.f_bfree, .bavail = s.f_bavail,
        .files = s.f_files, .ffree = s.f_ffree, .bsize = s.f_bsize, .namelen = s.f_namelen,
        .frsize = s.f_frsize};
      return reply(unique, 0, o, sizeof *o);
    }
    default:
      return reply(unique, ENOSYS, NULL, 0);
  }
}

static void *loop(void *unused) {
  char *in = malloc(kBuffer), *out = malloc(kBuffer);
  for (;;) {
    const ssize_t size = read(g_device, in, kBuffer);
    if (size < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
    if (size <= 0) exit(0); /* unmounted */
    in[size] = 0;
    serve((struct fuse_in_header *)in, out);
  }
  return unused;
}

static void end(int signal) {
  (void)signal;
  umount2(g_mount, MNT_DETACH);
  _exit(0);
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "Usage: ownfs SOURCE MOUNT\n");
    return 2;
  }
  g_paths[FUSE_ROOT_ID] = argv[1];
  g_mount = argv[2];
  g_device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  char options[100];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", g_device);
  if (g_device < 0 || mount("ownfs", g_mount, "fuse.ownfs", MS_NOSUID | MS_NODEV, options)) {
    perror("ownfs: cannot mount");
    return 1;
  }
  signal(SIGTERM, end);
  pthread_t thread;
  pthread_create(&thread, NULL, loop, NULL);
  loop(NULL);
}
