#include "talk.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

namespace loader {

static bool SocketAddress(const std::string &path, struct sockaddr_un *address) {
  memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(address->sun_path, path.data(), path.size());
  return true;
}

static int Connect(const std::string &path) {
  struct sockaddr_un address;
  if (!SocketAddress(path, &address)) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 &&
      connect(fd, reinterpret_cast<struct sockaddr *>(&address), sizeof(address)) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

int TalkListen(const std::string &path) {
  struct sockaddr_un address;
  if (!SocketAddress(path, &address)) return -1;
  // Remove a socket without a listener, which a killed predecessor has left.
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) {
    const int other = Connect(path);
    if (other >= 0)
      close(other);
    else if (errno == ECONNREFUSED)
      unlink(path.c_str());
  }

  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 ||
      bind(fd, reinterpret_cast<struct sockaddr *>(&address), sizeof(address)) != 0 ||
      listen(fd, 16) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

static void Write(int fd, const std::string &text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = send(fd, text.data() + written, text.size() - written, MSG_NOSIGNAL);
    if (n <= 0) return;  // the client went away
    written += n;
  }
}

static std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, n);
  return text;
}

static void Serve(int listener, std::string (*answer)(const std::string &)) {
  while (true) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::string command = ReadAll(fd);
    Write(fd, answer(command));
    close(fd);
  }
}

void TalkSpawn(int listener, std::string (*answer)(const std::string &)) {
  // The main thread handles the signals that unmount.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread(Serve, listener, answer).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

int TalkMain(const std::string &path, const std::string &command) {
  const int fd = Connect(path);
  if (fd < 0) {
    fprintf(stderr, "samplefs: cannot talk to %s: %s\n", path.c_str(), strerror(errno));
    return 1;
  }
  Write(fd, command);
  shutdown(fd, SHUT_WR);
  const std::string text = ReadAll(fd);
  close(fd);
  if (text.empty()) {
    fprintf(stderr, "samplefs: no answer to '%s'; known: internal affairs, calls\n",
            command.c_str());
    return 1;
  }
  fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace loader
