/** The inodes to which the kernel holds a reference. */
#ifndef SAMPLES_FS_INODE_TABLE_H_
#define SAMPLES_FS_INODE_TABLE_H_

#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

/**
 * Maps inode numbers to paths relative to the served directory. An inode number is
 * computed from the served file's device and inode, so that it does not change when the
 * kernel forgets the inode and looks it up again.
 */
class InodeTable {
 public:
  explicit InodeTable(const struct stat &root) : devices_{root.st_dev} {
    nodes_[FUSE_ROOT_ID] = {".", 1};
  }

  /** Returns the path of an inode that the kernel holds; empty if it does not hold it. */
  std::string Path(fuse_ino_t ino) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto node = nodes_.find(ino);
    return node == nodes_.end() ? "" : node->second.path;
  }

  /** Adds a reference to a file, for the reply to a lookup. Returns its inode number. */
  fuse_ino_t Reference(const std::string &path, const struct stat &info) {
    std::lock_guard<std::mutex> guard(mutex_);
    size_t device = 0;
    while (device < devices_.size() && devices_[device] != info.st_dev) ++device;
    if (device == devices_.size()) devices_.push_back(info.st_dev);
    // The served directory's file system is device 0: its inode numbers are not changed.
    const fuse_ino_t ino = info.st_ino ^ (static_cast<fuse_ino_t>(device) << 56);
    Node &node = nodes_[ino];
    if (node.references++ == 0) node.path = path;
    return ino;
  }

  void Forget(fuse_ino_t ino, uint64_t references) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto node = nodes_.find(ino);
    if (ino == FUSE_ROOT_ID || node == nodes_.end()) return;
    if (node->second.references > references)
      node->second.references -= references;
    else
      nodes_.erase(node);
  }

  /** Returns the number of inodes that the kernel holds, including the root. */
  size_t size() {
    std::lock_guard<std::mutex> guard(mutex_);
    return nodes_.size();
  }

 private:
  struct Node {
    std::string path;
    uint64_t references = 0;
  };
  std::mutex mutex_;
  std::unordered_map<fuse_ino_t, Node> nodes_;
  std::vector<dev_t> devices_;
};

#endif  // SAMPLES_FS_INODE_TABLE_H_
