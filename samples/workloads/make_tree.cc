/**
 * Makes the directory tree for the workloads, with prime numbers of files and pages:
 *
 *   DIR/dir-00 … dir-12        13 directories, in each of them
 *       file-000 … file-100    101 files of 127 bytes
 *       link-00 … link-30      31 symbolic links, link-NN to file-0NN
 *       pages                  a file of 127 pages (4096 bytes)
 *   DIR/deep/1/2/3/4/5/6/leaf  a file 8 levels deep
 *   DIR/big                    a file of 1009 pages
 *
 * Each page of a file is filled with one letter: page N with 'a' + N % 26.
 */
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

static void Check(bool good, const std::string &path) {
  if (good) return;
  fprintf(stderr, "make_tree: %s: %s\n", path.c_str(), strerror(errno));
  _exit(1);
}

static void MakeDirectory(const std::string &path) {
  Check(mkdir(path.c_str(), 0755) == 0, path);
}

static void MakeFile(const std::string &path, size_t size) {
  FILE *file = fopen(path.c_str(), "wx");
  Check(file != nullptr, path);
  for (size_t page = 0; page * 4096 < size; ++page) {
    const std::string text(std::min<size_t>(4096, size - page * 4096), 'a' + page % 26);
    Check(fwrite(text.data(), text.size(), 1, file) == 1, path);
  }
  Check(fclose(file) == 0, path);
}

static std::string Numbered(const char *format, int number) {
  char name[32];
  snprintf(name, sizeof(name), format, number);
  return name;
}

int main(int argc, char **argv) {
  if (argc != 2 || argv[1][0] == '-') {
    fprintf(stderr, "Usage: make_tree DIR\n");
    return 2;
  }
  const std::string top = argv[1];
  Check(mkdir(top.c_str(), 0755) == 0 || errno == EEXIST, top);
  for (int i = 0; i < 13; ++i) {
    const std::string directory = top + Numbered("/dir-%02d", i);
    MakeDirectory(directory);
    for (int j = 0; j < 101; ++j) MakeFile(directory + Numbered("/file-%03d", j), 127);
    for (int j = 0; j < 31; ++j) {
      const std::string link = directory + Numbered("/link-%02d", j);
      Check(symlink(Numbered("file-%03d", j).c_str(), link.c_str()) == 0, link);
    }
    MakeFile(directory + "/pages", 127 * 4096);
  }
  std::string deep = top + "/deep";
  MakeDirectory(deep);
  for (int i = 1; i <= 6; ++i) MakeDirectory(deep += "/" + std::to_string(i));
  MakeFile(deep + "/leaf", 127);
  MakeFile(top + "/big", 1009 * 4096);
}
