// In a guest in the place of the command `fusetools`: has the server forked.py run it, in a fork of a process that
// has imported fusetools. Sends arguments, environment, umask, ignored signals, the directory and the standard
// descriptors; passes signals on; ends as the command ends. If the server cannot be its equal, or is not there,
// runs the command itself.
// usage: forked ARGUMENT...     (ORIGINAL: the command; SOCKET: the server's)
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile pid_t command;

static void pass_on(int number) {
  int before = errno;
  kill(command, number);
  errno = before;
}

// Appends the strings, each with its end.
static char *pack(char *to, char **strings) {
  for (; *strings; strings++) to = stpcpy(to, *strings) + 1;
  return to;
}

static size_t length(char **strings) {
  size_t sum = 0;
  for (; *strings; strings++) sum += strlen(*strings) + 1;
  return sum;
}

static int whole(int at, void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = read(at, (char *)data + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    done += n;
  }
  return 1;
}

int main(int count, char **arguments) {
  (void)count;
  int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET};
  int descriptors[4] = {0, 1, 2, open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  for (int n = 0; n < 3; n++)
    if (fcntl(n, F_GETFD) < 0) goto itself;
  if (server < 3 || descriptors[3] < 3 || connect(server, (struct sockaddr *)&address, sizeof address)) goto itself;

  mode_t mask = umask(0);
  umask(mask);
  uint64_t ignored = 0;
  struct sigaction action;
  for (int n = 1; n < 32; n++)
    if (!sigaction(n, NULL, &action) && action.sa_handler == SIG_IGN) ignored |= 1ul << n;
  size_t words = length(arguments), settings = length(environ);
  uint64_t head[4] = {words, settings, mask, ignored};
  char *text = malloc(words + settings + 1);
  if (!text) goto itself;
  pack(pack(text, arguments), environ);

  struct iovec part = {head, sizeof head};
  char control[CMSG_SPACE(sizeof descriptors)] = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *more = CMSG_FIRSTHDR(&message);
  more->cmsg_level = SOL_SOCKET;
  more->cmsg_type = SCM_RIGHTS;
  more->cmsg_len = CMSG_LEN(sizeof descriptors);
  memcpy(CMSG_DATA(more), descriptors, sizeof descriptors);
  if (sendmsg(server, &message, MSG_NOSIGNAL) != sizeof head) goto itself;
  for (size_t done = 0; done < words + settings;) {
    ssize_t n = send(server, text + done, words + settings - done, MSG_NOSIGNAL);
    if (n <= 0) goto itself;
    done += n;
  }

  // Signals wait until there is a process to pass them on to.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  int32_t pid, status;
  if (!whole(server, &pid, sizeof pid) || pid <= 0) {
    sigprocmask(SIG_SETMASK, &before, NULL);
    goto itself;
  }
  command = pid;
  // No one else holds what the command inherits, as a pipe's reader waits for its last writer.
  close(0), close(1), close(2), close(descriptors[3]);
  // Also signals that this process ignores: the command may handle them.
  action = (struct sigaction){.sa_handler = pass_on, .sa_flags = SA_RESTART};
  for (int n = 1; n < 32; n++)
    if (n != SIGCHLD && n != SIGCONT && n != SIGTSTP) sigaction(n, &action, NULL);
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (!whole(server, &status, sizeof status)) _exit(125);
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));

itself:
  execv(ORIGINAL, arguments);
  _exit(127);
}
