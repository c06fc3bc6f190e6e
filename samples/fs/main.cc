/**
 * The executable. Like the CernVM-FS client's, it links neither libfuse nor the libraries
 * beside it: it loads the stub library, which loads the main library.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

int main(int argc, char **argv) {
  char *self = realpath("/proc/self/exe", nullptr);
  if (self == nullptr) {
    perror("samplefs: /proc/self/exe");
    return 1;
  }
  std::string path(self);
  free(self);
  path.resize(path.rfind('/') + 1);
  path += "libcvmfs_fuse3_stub.so." VERSION;

  void *stub = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (stub == nullptr) {
    fprintf(stderr, "samplefs: cannot load the stub library: %s\n", dlerror());
    return 1;
  }
  const auto stub_main = reinterpret_cast<int (*)(int, char **)>(dlsym(stub, "stub_main"));
  if (stub_main == nullptr) {
    fprintf(stderr, "samplefs: %s\n", dlerror());
    return 1;
  }
  return stub_main(argc, argv);
}
