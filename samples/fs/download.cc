#include "download.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <system_error>
#include <thread>

namespace download {

DownloadManager::DownloadManager() {
  if (pipe2(wakeup_, O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  std::thread(&DownloadManager::MainDownload, this).detach();
}

bool DownloadManager::Fetch(int port, const std::string &path) {
  JobInfo job(port, path);
  std::unique_lock<std::mutex> lock(mutex_);
  queue_.push_back(&job);
  if (write(wakeup_[1], "", 1) != 1) return false;
  while (!job.done) job.ended.wait(lock);
  return job.ok;
}

void DownloadManager::MainDownload() {
  for (;;) {
    std::vector<struct pollfd> polled = {{wakeup_[0], POLLIN, 0}};
    for (const Transfer &transfer : transfers_)
      polled.push_back({transfer.fd, static_cast<short>(transfer.sent ? POLLIN : POLLOUT), 0});
    if (poll(polled.data(), polled.size(), -1) < 0) continue;

    std::vector<Transfer> left;
    for (size_t i = 0; i < transfers_.size(); ++i) {
      if (polled[i + 1].revents == 0 || !Advance(&transfers_[i]))
        left.push_back(transfers_[i]);
    }
    transfers_.swap(left);
    char byte;
    if (polled[0].revents == 0 || read(wakeup_[0], &byte, 1) != 1) continue;
    JobInfo *job;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      job = queue_.front();
      queue_.pop_front();
    }
    Begin(job);
  }
}

void DownloadManager::Begin(JobInfo *job) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_port = htons(job->port);
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto address = reinterpret_cast<const struct sockaddr *>(&server);
  if (fd >= 0 && (connect(fd, address, sizeof(server)) == 0 || errno == EINPROGRESS)) {
    transfers_.push_back({job, fd, false, ""});
    return;
  }
  if (fd >= 0) close(fd);
  End(job, false);
}

/** Sends the request, or receives a part of the reply. Returns whether this was the end. */
bool DownloadManager::Advance(Transfer *transfer) {
  bool ok = false;
  if (!transfer->sent) {
    const std::string request = "GET /" + transfer->job->path + " HTTP/1.0\r\n\r\n";
    const auto size = static_cast<ssize_t>(request.size());
    transfer->sent = send(transfer->fd, request.data(), size, MSG_NOSIGNAL) == size;
    if (transfer->sent) return false;
  } else {
    const ssize_t received = recv(transfer->fd, buffer_, sizeof(buffer_), 0);
    if (received < 0 && errno == EAGAIN) return false;
    if (received > 0) {
      if (transfer->head.size() < 12) transfer->head.append(buffer_, received);
      return false;
    }
    ok = received == 0 && transfer->head.compare(0, 7, "HTTP/1.") == 0 &&
         transfer->head.compare(8, 4, " 200") == 0;
  }
  close(transfer->fd);
  End(transfer->job, ok);
  return true;
}

void DownloadManager::End(JobInfo *job, bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  job->ok = ok;
  job->done = true;
  job->ended.notify_one();  // under the lock: its owner deletes the job once it wakes up
}

}  // namespace download

namespace cvmfs {

bool Fetcher::Fetch(int port, const std::string &path) {
  return download_manager_.Fetch(port, path);
}

}  // namespace cvmfs
