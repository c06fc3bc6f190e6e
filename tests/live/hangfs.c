/* A file system that hangs in a way of one's choice: whoever looks up a name hangs by it, but for "d" and a digit, which
   are directories (the kernel looks up one name of a directory at a time), names that begin with "fine" (ENOENT), and
   "file", whose reads are never answered.

     hangfs MOUNTPOINT PATTERN [ARGUMENT]

   Patterns: mutexes (two threads each hold what the other one wants), mutex (all wait for one that sleeps), timed (so,
   with a time-out), self (waits for the mutex that it holds), shared (for one that another process holds), ended (for one
   whose holder has ended), join (for a thread that sleeps), flock (for the lock of the file ARGUMENT), last (for the last
   one of three children), rwlock
   (readers wait for a writer that sleeps), condition (never signalled), connect (ARGUMENT PORT of 127.0.0.1, reads from
   a server that does not answer, all others wait for its mutex), own (stat of its own mount), path (stat of ARGUMENT),
   child (waits for a process that sleeps in another mount namespace), pipe (reads from a process that sleeps), spin, lost (does not answer),
   reload (lets nothing in, as the CernVM-FS loader while it loads a library), paused (so, until SIGUSR1), download (all
   wait for a thread that polls a thousand times a second for the server at ARGUMENT PORT), quiet (answers ENOENT). It prints the ids of the threads that matter, a line each: "NAME TID". */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *pattern, *argument, *mountpoint;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int calls;
enum { FILE_INODE = 20 };

static void say(const char *name) {
  char line[64];
  int size = snprintf(line, sizeof line, "%s %ld\n", name, syscall(SYS_gettid));
  if (write(1, line, size) != size) abort();
}

static int is(const char *name) { return strcmp(pattern, name) == 0; }

static void sleep_long(void) {
  for (;;) sleep(3600);
}

static void look(const char *path) {
  struct stat status;
  say("looks");
  stat(path, &status);
}

static volatile int held;

static void *holds(void *argument) {
  pthread_mutex_lock(&one);
  say("holder");
  held = 1;
  if (!is("ended")) sleep_long();
  return argument;
}

/* The threads of CernVM-FS: callers wait for the download thread, each in a pipe of its own; others wait for commands. */
static int server = -1, jobs[2];

static void *MainDownload(void *unused) {
  (void)unused;
  say("downloads");
  for (char buffer[256];;) {
    struct pollfd polled[] = {{jobs[0], POLLIN, 0}, {server, POLLIN, 0}};
    if (poll(polled, 2, 1) > 0 && polled[0].revents && read(jobs[0], buffer, 1) < 0) abort();
    for (volatile int n = 0; n < 100000; n++) {}
  }
}

static void *MainWatchdogListener(void *unused) {
  int pipes[2];
  if (pipe(pipes)) abort();
  struct pollfd polled = {pipes[0], POLLIN, 0};
  for (;;) poll(&polled, 1, 200);
  return unused;
}

static void *MainCommandServer(void *unused) {
  int pipes[2];
  char byte;
  if (pipe(pipes)) abort();
  return read(pipes[0], &byte, 1) ? unused : NULL;
}

static void download(int number) {
  if (number == 0) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argument))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int connected = socket(AF_INET, SOCK_STREAM, 0);
    if (pipe(jobs) || connect(connected, (struct sockaddr *)&to, sizeof to) || write(connected, "GET\n", 4) != 4) abort();
    server = connected;
    pthread_t thread;
    pthread_create(&thread, NULL, MainDownload, NULL);
    pthread_create(&thread, NULL, MainWatchdogListener, NULL);
    pthread_create(&thread, NULL, MainCommandServer, NULL);
  }
  int answer[2];
  char byte;
  while (server < 0) usleep(1000);
  if (pipe(answer) || write(jobs[1], "", 1) != 1 || read(answer[0], &byte, 1) < 0) abort();
}

static __attribute__((noinline)) void hang(void) {
  int number = __sync_fetch_and_add(&calls, 1);
  if (is("mutexes")) {
    pthread_mutex_t *first = number % 2 ? &two : &one, *second = number % 2 ? &one : &two;
    if (number < 2) {
      pthread_mutex_lock(first);
      say(number ? "second" : "first");
      while (calls < 2) usleep(1000);
      usleep(50000);
    }
    pthread_mutex_lock(second);
  } else if (is("mutex") || is("connect")) {
    pthread_mutex_lock(&one);
    say("holder");
    if (is("mutex")) sleep_long();
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argument))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    char byte;
    if (connect(server, (struct sockaddr *)&to, sizeof to) || write(server, "GET\n", 4) != 4) abort();
    if (read(server, &byte, 1) >= 0) pthread_mutex_unlock(&one);
    close(server);
  } else if (is("self")) {
    pthread_mutex_lock(&one);
    say("holder");
    pthread_mutex_lock(&one);
  } else if (is("timed") || is("ended") || is("join")) {
    pthread_t other;
    pthread_create(&other, NULL, holds, NULL);
    while (!held) usleep(1000);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3600;
    if (is("timed")) pthread_mutex_timedlock(&one, &until);
    else pthread_join(other, NULL);
    pthread_mutex_lock(&one);
  } else if (is("shared")) {
    pthread_mutex_t *both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(both, &attributes);
    volatile int *ready = (int *)(both + 1);
    if (fork() == 0) {
      pthread_mutex_lock(both);
      say("holder");
      *ready = 1;
      sleep_long();
    }
    while (!*ready) usleep(1000);
    pthread_mutex_lock(both);
  } else if (is("flock")) {
    flock(open(argument, O_RDWR), LOCK_EX);
  } else if (is("last")) {
    pid_t child = 0;
    for (int i = 0; i < 3; i++)
      if ((child = fork()) == 0) {
        say("child");
        sleep_long();
      } else usleep(20000);
    waitpid(child, NULL, 0);
  } else if (is("rwlock")) {
    if (number == 0) {
      pthread_rwlock_wrlock(&shared);
      say("writer");
      sleep_long();
    }
    pthread_rwlock_rdlock(&shared);
  } else if (is("condition")) {
    say("waits");
    pthread_mutex_lock(&one);
    pthread_cond_wait(&never, &one);
  } else if (is("own")) {
    char path[4096];
    snprintf(path, sizeof path, "%s/d9/inner", mountpoint);
    look(path);
  } else if (is("path")) {
    look(argument);
  } else if (is("child") || is("pipe")) {
    int ends[2];
    if (pipe(ends)) abort();
    pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      if (unshare(CLONE_NEWNS)) abort();
      say("child");
      sleep_long();
    }
    close(ends[1]);
    char byte;
    if (is("child")) waitpid(child, NULL, 0);
    else if (read(ends[0], &byte, 1) < 0) abort();
  } else if (is("download")) {
    download(number);
  } else if (is("spin")) {
    say("spins");
    for (volatile long n = 0;; n++) {}
  }
}

static void lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  (void)parent;
  if (name[0] == 'd' && name[1] >= '0' && name[1] <= '9' && !name[2]) {
    struct fuse_entry_param entry = {.ino = 2 + name[1] - '0', .attr_timeout = 100, .entry_timeout = 100};
    entry.attr = (struct stat){.st_ino = entry.ino, .st_mode = S_IFDIR | 0755, .st_nlink = 2};
    fuse_reply_entry(req, &entry);
    return;
  }
  if (strcmp(name, "file") == 0) {
    struct fuse_entry_param entry = {.ino = FILE_INODE, .attr_timeout = 100, .entry_timeout = 100};
    entry.attr = (struct stat){.st_ino = entry.ino, .st_mode = S_IFREG | 0755, .st_nlink = 1, .st_size = 1 << 20};
    fuse_reply_entry(req, &entry);
    return;
  }
  if (!is("quiet") && strncmp(name, "fine", 4) != 0) {
    if (is("lost")) return;
    hang();
  }
  fuse_reply_err(req, ENOENT);
}

/* The names and calls of the loader of CernVM-FS, which sleeps in them 100 ms at a time. */
static volatile int blocking = 1;

static __attribute__((noinline)) void SafeSleepMs(unsigned ms) {
  struct timeval wait = {ms / 1000, ms % 1000 * 1000};
  select(0, NULL, NULL, NULL, &wait);
  __asm__ volatile("");
}

static __attribute__((noinline)) void *WaitForSignal(void *unused) {
  sigset_t wanted;
  int number;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  say("waits");
  sigwait(&wanted, &number);
  blocking = 0;
  return unused;
}

static __attribute__((noinline)) void stub_lookup(fuse_req_t req, fuse_ino_t parent, const char *name) {
  while (blocking && name[0] != 'd') SafeSleepMs(100);
  lookup(req, parent, name);
}

static void getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi) {
  (void)fi;
  struct stat attr = {.st_ino = ino, .st_mode = S_IFDIR | 0755, .st_nlink = 2};
  if (ino == FILE_INODE) attr = (struct stat){.st_ino = ino, .st_mode = S_IFREG | 0755, .st_nlink = 1, .st_size = 1 << 20};
  fuse_reply_attr(req, &attr, 1.0);
}

static void never_answer(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi) {
  (void)req, (void)ino, (void)size, (void)off, (void)fi;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  mountpoint = argv[1];
  pattern = argv[2];
  argument = argc > 3 ? argv[3] : "";
  struct fuse_lowlevel_ops ops = {.lookup = is("reload") || is("paused") ? stub_lookup : lookup, .getattr = getattr, .read = never_answer};
  struct fuse_args args = FUSE_ARGS_INIT(1, argv);
  struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, NULL);
  if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, mountpoint)) return 1;
  if (is("paused")) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, WaitForSignal, NULL);
  }
  say("mounted");
  int status = fuse_session_loop_mt(session, 0);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return status != 0;
}
