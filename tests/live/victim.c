/* A process that has a secret on its stack: victim NAME TOKEN. The token, 16 hexadecimal digits, is 8 bytes that fill the
 * stack, and stand where a walk by frame pointers finds return addresses. It waits in the ways in which daemons wait. */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

struct frame {
  struct frame *next;
  uint64_t address;
};

/* With the frame pointer at `fp`: a system call, or a while on the CPU if `number` is -1. */
static __attribute__((noinline)) long walked(struct frame *fp, long number, long a, long b, long c, long d) {
  long result = number;
  register long r10 __asm__("r10") = d;
  if (number < 0) {
    long rounds = 400000;
    __asm__ volatile(
        "push %%rbp; mov %[fp], %%rbp; 1: dec %[n]; jnz 1b; pop %%rbp"
        : [n] "+r"(rounds)
        : [fp] "r"(fp)
        : "memory");
    return 0;
  }
  __asm__ volatile(
      "push %%rbp; mov %[fp], %%rbp; syscall; pop %%rbp"
      : "+a"(result)
      : [fp] "r"(fp), "D"(a), "S"(b), "d"(c), "r"(r10)
      : "rcx", "r11", "memory");
  return result;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  uint64_t token = strtoull(argv[2], NULL, 16);
  memset(argv[2], 'x', strlen(argv[2]));
  prctl(PR_SET_NAME, argv[1]);
  volatile uint64_t filled[4096];
  struct frame frames[32];
  for (int i = 0; i < 4096; i++) filled[i] = token;
  for (int i = 0; i < 32; i++) frames[i] = (struct frame){i < 31 ? &frames[i + 1] : NULL, token};
  printf("ready\n");
  fflush(stdout);
  uint32_t word = 0;
  for (;;) {
    struct timespec pause = {0, 1000000};
    walked(frames, SYS_poll, 0, 0, 1, 0);
    walked(frames, SYS_futex, (long)&word, 0 /* FUTEX_WAIT */, 0, (long)&pause);
    walked(frames, SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&pause, 0);
    walked(frames, -1, 0, 0, 0, 0);
    if (filled[0] != token) return 1;
  }
}
