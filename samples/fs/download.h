/**
 * Downloads, by one thread for all callbacks: whoever needs one waits on a condition
 * variable, as in the CernVM-FS client, whose names the classes and functions have.
 */
#ifndef SAMPLES_FS_DOWNLOAD_H_
#define SAMPLES_FS_DOWNLOAD_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace download {

/** What a callback waits for. */
struct JobInfo {
  JobInfo(int port, const std::string &path) : port(port), path(path) {}
  const int port;  // on 127.0.0.1
  const std::string path;
  std::condition_variable ended;
  bool done = false;
  bool ok = false;  // answered with status 200, to the last byte
};

class DownloadManager {
 public:
  /** Starts the thread. It is never joined: it ends with the process. */
  DownloadManager();
  /** GET of http://127.0.0.1:port/path; whether that went well. The content is not kept. */
  bool Fetch(int port, const std::string &path);

 private:
  struct Transfer {
    JobInfo *job;
    int fd;
    bool sent;
    std::string head;  // of the answer, its first bytes
  };
  void MainDownload();
  void Begin(JobInfo *job);
  bool Advance(Transfer *transfer);
  void End(JobInfo *job, bool ok);

  int wakeup_[2];  // a pipe: a byte for each job that was put into the queue
  std::mutex mutex_;
  std::deque<JobInfo *> queue_;
  std::vector<Transfer> transfers_;  // the thread's own
  char buffer_[16384];               // the thread's own, too; not on its stack, as curl's
};

}  // namespace download

namespace cvmfs {

class Fetcher {
 public:
  bool Fetch(int port, const std::string &path);

 private:
  download::DownloadManager download_manager_;
};

}  // namespace cvmfs

#endif  // SAMPLES_FS_DOWNLOAD_H_
