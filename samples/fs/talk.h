/** `samplefs --talk`: asks a mounted sample file system for its counters. */
#ifndef SAMPLES_FS_TALK_H_
#define SAMPLES_FS_TALK_H_

#include <string>

namespace loader {

/** Listens on a Unix socket; returns its descriptor, or -1 with errno set. */
int TalkListen(const std::string &path);

/** Answers each command with answer(command), for ever, in a thread of its own. */
void TalkSpawn(int listener, std::string (*answer)(const std::string &));

/** Prints the answer to a command; returns an exit status. */
int TalkMain(const std::string &path, const std::string &command);

}  // namespace loader

#endif  // SAMPLES_FS_TALK_H_
