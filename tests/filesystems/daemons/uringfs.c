/**
 * A file system without any library that speaks FUSE over io_uring (Linux 6.14), by raw system
 * calls: a ring and a thread for each CPU. What comes by /dev/fuse (INIT, FORGET, and whatever is
 * asked before the rings are there) is answered there, by a thread of its own.
 *
 * Its one directory has every name that begins with "file" (1 MiB of zeros) or "hang" (whose lookup
 * is never answered). It prints "ready PID" once the rings are there, and on SIGTERM, as JSON, the
 * replies by operation, of the rings and of the device, and the most requests that one return of
 * io_uring_enter brought.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/fuse.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const char kUsage[] =
    "Usage: uringfs [options] MOUNT\n"
    "  --delay MS          each lookup takes so long, asleep\n"
    "  --depth N           requests that a ring holds (default 4)\n"
    "  --batch             the replies of a ring go out together, with its next wait\n"
    "  --workers N         N other threads answer what the rings' threads take\n"
    "  --passthrough PATH  file0 is read from PATH by the kernel (FOPEN_PASSTHROUGH)\n";

/* include/uapi/linux/fuse.h of later kernels than the headers may be of. */
enum {
  kOverRing = 1 << (41 - 32), /* FUSE_OVER_IO_URING, in flags2 */
  kPassthrough = 1 << (37 - 32),
  kOpenPassthrough = 1 << 7,
  kInitExt = 1 << 30,
  kRegister = 1, /* enum fuse_uring_cmd */
  kCommitAndFetch = 2,
  kUringCmd = 46, /* IORING_OP_URING_CMD */
};

struct header { /* struct fuse_uring_req_header */
  union {
    char in_out[128];
    struct fuse_in_header in;
    struct fuse_out_header out;
  };
  char arg[128];
  uint64_t flags, commit;
  uint32_t payload, padding;
  uint64_t reserved;
};

struct command { /* struct fuse_uring_cmd_req */
  uint64_t flags, commit;
  uint16_t queue;
  uint8_t padding[6];
};

struct backing { /* struct fuse_backing_map */
  int32_t fd;
  uint32_t flags;
  uint64_t padding;
};

enum { kPayload = 1 << 17, kFileSize = 1 << 20, kSqe = 128, kMostDepth = 64, kOpcodes = 64 };

struct ring;
struct entry {
  struct ring *ring;
  struct entry *next; /* of those that wait for a worker */
  struct header *header;
  char *payload;
  struct iovec parts[2];
};

struct ring {
  int fd, queue, unsent;
  pthread_mutex_t lock;
  _Atomic unsigned *sq_tail, *cq_head, *cq_tail;
  unsigned sq_mask, cq_mask, *array;
  char *sqes;
  struct io_uring_cqe *cqes;
  struct entry entries[kMostDepth];
};

static int g_device, g_delay, g_depth = 4, g_batch, g_workers, g_backing = -1;
static const char *g_mount;
static atomic_int g_by_ring[kOpcodes], g_by_device[kOpcodes], g_most, g_ready;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t g_some = PTHREAD_COND_INITIALIZER;
static struct entry *g_work, **g_last = &g_work;

static void attributes(uint64_t inode, struct fuse_attr *out) {
  const int root = inode == FUSE_ROOT_ID;
  *out = (struct fuse_attr){.ino = inode, .size = root ? 0 : kFileSize,
    .mode = root ? 040755 : 0100644, .nlink = 1, .blksize = 4096};
}

__attribute__((noinline)) static void slow_lookup(const char *name) {
  struct timespec time = {g_delay / 1000, g_delay % 1000 * 1000000};
  if (!strncmp(name, "hang", 4)) time.tv_sec = 1 << 30;
  while ((time.tv_sec || time.tv_nsec) && nanosleep(&time, &time)) {}
}

static uint64_t inode_of(const char *name) {
  uint64_t sum = 2;
  for (; *name; ++name) sum = sum * 31 + (unsigned char)*name;
  return sum;
}

/* The answer to a request, into `out`; comes back: its size, or -errno. */
static int answer(const struct fuse_in_header *in, const void *arg, const char *name, char *out) {
  switch (in->opcode) {
    case FUSE_INIT: {
      const struct fuse_init_in *init = arg;
      struct fuse_init_out *o = memset(out, 0, sizeof *o);
      o->major = FUSE_KERNEL_VERSION;
      o->minor = 38;
      o->max_readahead = init->max_readahead;
      o->flags = kInitExt | (init->flags & (FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS));
      o->flags2 = kOverRing | (g_backing < 0 ? 0 : kPassthrough);
      o->max_background = 64;
      o->congestion_threshold = 48;
      o->max_write = kPayload / 2;
      o->time_gran = 1;
      ((uint32_t *)o)[9] = 1; /* max_stack_depth, after flags2 */
      return sizeof *o;
    }
    case FUSE_LOOKUP: {
      struct fuse_entry_out *o = memset(out, 0, sizeof *o);
      slow_lookup(name);
      if (strncmp(name, "file", 4) && strncmp(name, "hang", 4)) return -ENOENT;
      o->nodeid = inode_of(name);
      attributes(o->nodeid, &o->attr);
      return sizeof *o;
    }
    case FUSE_GETATTR: {
      struct fuse_attr_out *o = memset(out, 0, sizeof *o);
      attributes(in->nodeid, &o->attr);
      return sizeof *o;
    }
    case FUSE_OPEN: {
      struct fuse_open_out *o = memset(out, 0, sizeof *o);
      if (g_backing >= 0 && in->nodeid == inode_of("file0")) {
        struct backing map = {.fd = g_backing};
        const int id = ioctl(g_device, _IOW(229, 1, struct backing), &map);
        if (id < 0) return -errno;
        o->open_flags = kOpenPassthrough;
        ((int32_t *)o)[3] = id; /* backing_id, in place of the padding */
      }
      return sizeof *o;
    }
    case FUSE_OPENDIR:
      memset(out, 0, sizeof(struct fuse_open_out));
      return sizeof(struct fuse_open_out);
    case FUSE_READ: {
      const struct fuse_read_in *r = arg;
      const uint64_t left = r->offset < kFileSize ? kFileSize - r->offset : 0;
      const int size = left < r->size ? left : r->size;
      memset(out, 0, size);
      return size;
    }
    case FUSE_READDIR:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
      return 0;
    default:
      return -ENOSYS;
  }
}

static int enter(struct ring *ring, int submit, int wait) {
  const int flags = wait ? IORING_ENTER_GETEVENTS : 0;
  return syscall(SYS_io_uring_enter, ring->fd, submit, wait, flags, NULL, 0);
}

/* Puts a command of an entry into the ring; with its lock. */
static void put(struct entry *entry, int operation) {
  struct ring *ring = entry->ring;
  const unsigned tail = *ring->sq_tail, at = tail & ring->sq_mask;
  struct io_uring_sqe *sqe = memset(ring->sqes + at * kSqe, 0, kSqe);
  struct command *command = (struct command *)((char *)sqe + 48); /* sqe->cmd */
  sqe->opcode = kUringCmd;
  sqe->fd = g_device;
  sqe->off = operation; /* cmd_op, in its lower half */
  sqe->user_data = (uintptr_t)entry;
  if (operation == kRegister) {
    sqe->addr = (uintptr_t)entry->parts;
    sqe->len = 2;
  }
  *command = (struct command){.commit = entry->header->commit, .queue = ring->queue};
  ring->array[at] = at;
  atomic_store(ring->sq_tail, tail + 1);
}

/* Answers what an entry holds. */
static void serve(struct entry *entry) {
  struct ring *ring = entry->ring;
  struct header *header = entry->header;
  const struct fuse_in_header in = header->in;
  char name[256] = "", *out = entry->payload;
  memcpy(name, entry->payload, header->payload < 255 ? header->payload : 255);
  const int size = answer(&in, header->arg, name, out);
  /* The length stays the request's, as with libfuse: the kernel takes that of the payload. */
  header->out = (struct fuse_out_header){in.len, size < 0 ? size : 0, in.unique};
  header->payload = size < 0 ? 0 : size;
  ++g_by_ring[in.opcode % kOpcodes];
  pthread_mutex_lock(&ring->lock);
  put(entry, kCommitAndFetch);
  if (g_batch) ++ring->unsent;
  else enter(ring, 1, 0);
  pthread_mutex_unlock(&ring->lock);
}

static void *work(void *unused) {
  for (;;) {
    pthread_mutex_lock(&g_lock);
    while (!g_work) pthread_cond_wait(&g_some, &g_lock);
    struct entry *entry = g_work;
    if (!(g_work = entry->next)) g_last = &g_work;
    pthread_mutex_unlock(&g_lock);
    serve(entry);
  }
  return unused;
}

static void hand_on(struct entry *entry) {
  pthread_mutex_lock(&g_lock);
  entry->next = NULL;
  *g_last = entry;
  g_last = &entry->next;
  pthread_cond_signal(&g_some);
  pthread_mutex_unlock(&g_lock);
}

static void *area(size_t size) {
  return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static void set_up(struct ring *ring) {
  struct io_uring_params p = {.flags = 1 << 10}; /* IORING_SETUP_SQE128 */
  ring->fd = syscall(SYS_io_uring_setup, g_depth, &p);
  if (ring->fd < 0) {
    perror("uringfs: io_uring_setup");
    exit(1);
  }
  const int shared = MAP_SHARED | MAP_POPULATE, both = PROT_READ | PROT_WRITE;
  const size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
  const size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
  char *rings = mmap(NULL, sq > cq ? sq : cq, both, shared, ring->fd, IORING_OFF_SQ_RING);
  ring->sqes = mmap(NULL, p.sq_entries * kSqe, both, shared, ring->fd, IORING_OFF_SQES);
  ring->sq_tail = (void *)(rings + p.sq_off.tail);
  ring->sq_mask = *(unsigned *)(rings + p.sq_off.ring_mask);
  ring->array = (void *)(rings + p.sq_off.array);
  ring->cq_head = (void *)(rings + p.cq_off.head);
  ring->cq_tail = (void *)(rings + p.cq_off.tail);
  ring->cq_mask = *(unsigned *)(rings + p.cq_off.ring_mask);
  ring->cqes = (void *)(rings + p.cq_off.cqes);
  for (int i = 0; i < g_depth; ++i) {
    struct entry *entry = &ring->entries[i];
    entry->ring = ring;
    entry->header = area(sizeof *entry->header);
    entry->payload = area(kPayload);
    entry->parts[0] = (struct iovec){entry->header, sizeof *entry->header};
    entry->parts[1] = (struct iovec){entry->payload, kPayload};
    put(entry, kRegister);
  }
}

static void *serve_ring(void *argument) {
  struct ring *ring = argument;
  char name[16];
  snprintf(name, sizeof name, "uringfs-%d", ring->queue);
  pthread_setname_np(pthread_self(), name);
  set_up(ring);
  if (enter(ring, g_depth, 0) != g_depth) {
    fprintf(stderr, "uringfs: the kernel takes no rings (fuse.enable_uring)\n");
    exit(1);
  }
  ++g_ready;
  for (;;) {
    const int unsent = ring->unsent;
    ring->unsent = 0;
    if (enter(ring, unsent, 1) < 0 && errno != EINTR) return NULL;
    int brought = 0;
    for (unsigned head; (head = *ring->cq_head) != atomic_load(ring->cq_tail); ++brought) {
      const struct io_uring_cqe done = ring->cqes[head & ring->cq_mask];
      atomic_store(ring->cq_head, head + 1);
      struct entry *entry = (struct entry *)(uintptr_t)done.user_data;
      if (done.res) exit(0); /* unmounted */
      if (g_workers) hand_on(entry);
      else serve(entry);
    }
    if (brought > g_most) g_most = brought;
  }
}

static void *serve_device(void *unused) {
  char *in = malloc(2 * kPayload), *out = malloc(2 * kPayload);
  for (;;) {
    const ssize_t size = read(g_device, in, 2 * kPayload);
    if (size < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
    if (size <= 0) exit(0); /* unmounted */
    in[size] = 0;
    const struct fuse_in_header *header = (void *)in;
    const uint32_t opcode = header->opcode;
    ++g_by_device[opcode % kOpcodes];
    if (opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT) continue;
    const int used = answer(header, header + 1, (char *)(header + 1), out);
    struct fuse_out_header reply = {sizeof reply + (used < 0 ? 0 : used), used < 0 ? used : 0,
      header->unique};
    struct iovec parts[2] = {{&reply, sizeof reply}, {out, used < 0 ? 0 : used}};
    (void)!writev(g_device, parts, 2);
    if (opcode != FUSE_INIT) continue;
    const int rings = sysconf(_SC_NPROCESSORS_CONF);
    for (int i = 0; i < rings; ++i) {
      struct ring *ring = calloc(1, sizeof *ring);
      ring->queue = i;
      pthread_mutex_init(&ring->lock, NULL);
      pthread_create(&(pthread_t){0}, NULL, serve_ring, ring);
    }
    while (g_ready < rings) usleep(1000);
    printf("ready %d\n", getpid());
    fflush(stdout);
  }
  return unused;
}

static void print(const char *name, atomic_int *counts, const char *end) {
  printf("\"%s\": {", name);
  const char *comma = "";
  for (int i = 0; i < kOpcodes; ++i) {
    if (!counts[i]) continue;
    printf("%s\"%d\": %d", comma, i, counts[i]);
    comma = ", ";
  }
  printf("}%s", end);
}

int main(int argc, char **argv) {
  static const struct option kOptions[] = {{"delay", 1, NULL, 'd'}, {"depth", 1, NULL, 'n'},
    {"batch", 0, NULL, 'b'}, {"workers", 1, NULL, 'w'}, {"passthrough", 1, NULL, 'p'}, {0}};
  for (int option; (option = getopt_long(argc, argv, "", kOptions, NULL)) != -1;) {
    if (option == 'd') g_delay = atoi(optarg);
    else if (option == 'n') g_depth = atoi(optarg);
    else if (option == 'b') g_batch = 1;
    else if (option == 'w') g_workers = atoi(optarg);
    else if (option == 'p') g_backing = open(optarg, O_RDONLY);
    else optind = argc;
  }
  if (optind + 1 != argc || g_depth < 1 || g_depth > kMostDepth) {
    fputs(kUsage, stderr);
    return 2;
  }
  g_mount = argv[optind];
  g_device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  char options[100];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
    g_device);
  if (g_device < 0 || mount("uringfs", g_mount, "fuse.uringfs", MS_NOSUID | MS_NODEV, options)) {
    perror("uringfs: cannot mount");
    return 1;
  }
  for (int i = 0; i < g_workers; ++i) pthread_create(&(pthread_t){0}, NULL, work, NULL);
  pthread_create(&(pthread_t){0}, NULL, serve_device, NULL);
  int signal;
  sigwait(&set, &signal);
  printf("{");
  print("ring", g_by_ring, ", ");
  print("device", g_by_device, ", ");
  printf("\"most\": %d}\n", g_most);
  fflush(stdout);
  umount2(g_mount, MNT_DETACH);
  _exit(0);
}
