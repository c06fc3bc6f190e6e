/* Times loops by the CPU time of the threads that run them. In a guest whose clocks count
 * instructions (tests/vm/vm.py) that is their number of instructions.
 *
 *   instructions stat COUNT PATH PID   stats of PATH: the CPU time of this process and of the
 *                                      daemon PID, each in ns for one stat
 *   instructions LOOP COUNT            one of the other loops, in ns for one round
 *
 * Begins when its input has a line or ends. Prints "LOOP NS", or "stat NS NS". A quarter of COUNT
 * comes before, unmeasured.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static double used(clockid_t clock) {
  struct timespec now;
  if (clock_gettime(clock, &now)) fail("clock_gettime");
  return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Two instructions a round: that number is known. */
static void spin(long count) {
  __asm__ volatile("1: dec %0; jnz 1b" : "+r"(count) : : "cc");
}

static void call(long count) {
  while (count--) syscall(SYS_getppid);
}

static int file;

static void fstat_loop(long count) {
  struct stat info;
  while (count--)
    if (fstat(file, &info)) fail("fstat");
}

static int there[2], back[2];

static void *answer(void *unused) {
  char byte;
  while (read(there[0], &byte, 1) == 1)
    if (write(back[1], &byte, 1) != 1) fail("write");
  return unused;
}

/* A round is two switches, two wake-ups, two reads and two writes of the process's two threads. */
static void switches(long count) {
  char byte = 0;
  while (count--)
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) fail("pipe");
}

static const char *path;

static void stat_loop(long count) {
  struct stat info;
  while (count--)
    if (stat(path, &info)) fail(path);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*loop)(long);
  } loops[] = {{"spin", spin}, {"call", call}, {"fstat", fstat_loop}, {"switch", switches},
               {"stat", stat_loop}};
  if (argc < 3) return 2;
  const long count = atol(argv[2]);
  clockid_t own = CLOCK_PROCESS_CPUTIME_ID, daemon = 0;
  if (argc > 4) {
    path = argv[3];
    if (clock_getcpuclockid(atoi(argv[4]), &daemon)) fail("no clock of the daemon");
  }
  getchar();
  pthread_t second;
  file = memfd_create("file", 0);
  if (pipe(there) || pipe(back) || pthread_create(&second, NULL, answer, NULL)) fail("pipe");
  for (unsigned i = 0; i < sizeof(loops) / sizeof(*loops); i++) {
    if (strcmp(loops[i].name, argv[1])) continue;
    loops[i].loop(count / 4);
    const double began = used(own), served = daemon ? used(daemon) : 0;
    loops[i].loop(count);
    printf("%s %.1f", argv[1], (used(own) - began) / count);
    if (daemon) printf(" %.1f", (used(daemon) - served) / count);
    puts("");
    return 0;
  }
  return 2;
}
