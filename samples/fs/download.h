/**
 * Downloads by one thread for all callbacks, which wait on a condition variable. Classes
 * and functions have the names of the CernVM-FS client's.
 */
#ifndef SAMPLES_FS_DOWNLOAD_H_
#define SAMPLES_FS_DOWNLOAD_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace download {

/** A download for which a callback waits. */
struct JobInfo {
  JobInfo(int port, const std::string &path) : port(port), path(path) {}
  const int port;  // on 127.0.0.1
  const std::string path;
  std::condition_variable ended;
  bool done = false;
  bool ok = false;  // complete, with status 200
};

class DownloadManager {
 public:
  /** Starts the thread, which ends with the process. */
  DownloadManager();
  /** Gets http://127.0.0.1:port/path, discards it, and returns whether this succeeded. */
  bool Fetch(int port, const std::string &path);

 private:
  struct Transfer {
    JobInfo *job;
    int fd;
    bool sent;
    std::string head;  // first bytes of the reply
  };
  void MainDownload();
  void Begin(JobInfo *job);
  bool Advance(Transfer *transfer);
  void End(JobInfo *job, bool ok);

  int wakeup_[2];  // a pipe with a byte for each queued job
  std::mutex mutex_;
  std::deque<JobInfo *> queue_;
  std::vector<Transfer> transfers_;  // used by the thread only
  char buffer_[16384];               // the thread's; like curl's, not on its stack
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
