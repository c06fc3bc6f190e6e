/** `samplefs --talk`: prints the counters of a mounted sample file system. */
#ifndef SAMPLES_FS_TALK_H_
#define SAMPLES_FS_TALK_H_

#include <string>

namespace loader {

/** Listens on a Unix socket. Returns its descriptor, or -1 with errno set. */
int TalkListen(const std::string &path);

/** Starts a thread that answers each command with answer(command). */
void TalkSpawn(int listener, std::string (*answer)(const std::string &));

/** Prints the answer to a command. Returns an exit status. */
int TalkMain(const std::string &path, const std::string &command);

}  // namespace loader

#endif  // SAMPLES_FS_TALK_H_
