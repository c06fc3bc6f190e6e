/* chains COUNT CHAIN …: COUNT times each chain of calls, in the main thread and in one more; at its
   end the thread sleeps.

   A chain is a word of the letters of `functions`, called in that order; the last one sleeps. While
   it does, the thread's name is 'm' (main) or 't' and the chain: it says what the stack must be.
   Compiled without frame pointers: each function lays out its frame in another way. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
#define USED(value) __asm__ volatile("" : "+r"(value) : : "memory")

enum { NS = 300000 };
typedef int function(const char *rest);
static function *functions[128];
static inline __attribute__((always_inline)) int call(const char *rest) { return functions[(int)*rest](rest + 1); }

/* Nothing saved, nothing of its own. */
APART int a(const char *rest) {
  int n = call(rest);
  USED(n);
  return n + 1;
}

/* A frame of a size that is known only here, found by a register. */
APART int b(const char *rest) {
  char *own = alloca(16 + 8 * strlen(rest));
  memset(own, 1, 16);
  USED(own);
  int n = call(rest);
  USED(own);
  return n + own[3];
}

/* All registers that a function must save, rbp too, hold values of its own. */
APART int c(const char *rest) {
  long one = 1, two = 2, three = 3, four = 4, five = 5, six = 6;
  USED(one); USED(two); USED(three); USED(four); USED(five); USED(six);
  int n = call(rest);
  USED(one); USED(two); USED(three); USED(four); USED(five); USED(six);
  return n + (int)(one + two + three + four + five + six);
}

/* A frame of 1 KiB. */
APART int d(const char *rest) {
  char own[1024];
  memset(own, 2, sizeof own);
  char *p = own;
  USED(p);
  int n = call(rest);
  USED(p);
  return n + p[7];
}

/* A frame at a multiple of 64. */
APART int e(const char *rest) {
  char own[64] __attribute__((aligned(64)));
  memset(own, 3, sizeof own);
  char *p = own;
  USED(p);
  int n = call(rest);
  USED(p);
  return n + p[7];
}

static _Thread_local const char *of_thread;

APART int compare(const void *one, const void *other) {
  int n = call(of_thread) + *(const int *)one - *(const int *)other;
  USED(n);
  return n;
}

/* Called back by the C library. */
APART int q(const char *rest) {
  int two[2] = {1, 2};
  of_thread = rest;
  qsort(two, 2, sizeof *two, compare);
  return two[0];
}

APART void handler(int signal) {
  (void)signal;
  int n = call(of_thread);
  USED(n);
}

/* Called by the kernel, for a signal. */
APART int s(const char *rest) {
  of_thread = rest;
  int n = pthread_kill(pthread_self(), SIGUSR1);
  USED(n);
  return n;
}

/* Ends of chains. */
APART int n(const char *rest) {
  (void)rest;
  struct timespec time = {0, NS};
  int n = nanosleep(&time, NULL);
  USED(n);
  return n;
}

APART int w(const char *rest) {
  (void)rest;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += NS;
  if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
  pthread_mutex_lock(&mutex);
  int n = pthread_cond_timedwait(&condition, &mutex, &until);
  pthread_mutex_unlock(&mutex);
  return n;
}

static int count;
static char **chains;

static inline __attribute__((always_inline)) void all(char thread) {
  for (int i = 0; i < count; i++)
    for (char **chain = chains; *chain; chain++) {
      char name[16];
      snprintf(name, sizeof name, "%c%s", thread, *chain);
      prctl(PR_SET_NAME, name);
      call(*chain);
      prctl(PR_SET_NAME, "chains");
    }
}

APART void *thread(void *arg) {
  all('t');
  return arg;
}

int main(int argc, char **argv) {
  static const struct { char name; function *call; } known[] = {
      {'a', a}, {'b', b}, {'c', c}, {'d', d}, {'e', e}, {'q', q}, {'s', s}, {'n', n}, {'w', w}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    functions[(int)known[i].name] = known[i].call;
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
  sigaction(SIGUSR1, &action, NULL);
  count = argc > 1 ? atoi(argv[1]) : 1;
  chains = argv + 2;
  pthread_t other;
  if (pthread_create(&other, NULL, thread, NULL)) return 1;
  all('m');
  return pthread_join(other, NULL);
}
