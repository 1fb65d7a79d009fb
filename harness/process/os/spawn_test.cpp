#include "harness/process/os/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/process/os/capped_log.h"

namespace harness {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// What a shell line printed.
std::string output_of(const std::string& line) {
  const TempDir dir;
  Child child = spawn({.argv = {"/bin/sh", "-c", line}, .env = {}, .result_fd = -1});
  CappedLog log(std::move(child.out), dir / "out", 1 << 20);
  while (log.fd() >= 0) log.drain();
  ::waitpid(child.pid, nullptr, 0);
  return read_bytes(dir / "out");
}

TEST(Spawn, ProgramsThatCannotStartAreNamed) {
  const TempDir dir;
  write_bytes(dir / "no_program", "x");
  for (const auto& [program, code] : std::vector<std::pair<std::string, int>>{
           {(dir / "none").string(), ENOENT}, {(dir / "no_program").string(), EACCES}})
    try {
      spawn({.argv = {program}, .env = {}, .result_fd = -1});
      ADD_FAILURE() << program;
    } catch (const NotStarted& e) {
      EXPECT_EQ(e.code(), code);
      EXPECT_THAT(e.what(), HasSubstr("cannot start " + program));
    }
}

TEST(Spawn, AChildLeadsItsOwnSessionAndHasNothingOfOurs) {
  EXPECT_EQ(output_of("[ \"$(cut -d' ' -f6 /proc/$$/stat)\" = $$ ] && echo leader"), "leader\n");
  const int inherited = ::dup(0);  // open at exec unless somebody sees to it
  EXPECT_EQ(output_of("exec ls /proc/self/fd"), "0\n1\n2\n3\n") << "3: the folder that ls reads";
  ::close(inherited);
}

TEST(Spawn, AnAllowListKeepsSecretsOut) {
  ::setenv("SECRET_TOKEN", "s", 1);
  ::setenv("OMP_SPAWN_TEST", "2", 1);
  const auto env = worker_environment({{"NSA_X", "given"}, {"OMP_SPAWN_TEST", "3"}});
  ::unsetenv("OMP_SPAWN_TEST");
  ::unsetenv("SECRET_TOKEN");
  EXPECT_THAT(env, Contains("NSA_X=given"));
  EXPECT_THAT(env, Contains("OMP_SPAWN_TEST=3")) << "what is given wins";
  EXPECT_THAT(env, Not(Contains(HasSubstr("SECRET"))));
  for (const char* refused : {"SECRET_TOKEN", "XNSA_A", "LD_PRELOAD", ""})
    EXPECT_FALSE(env_allowed(refused)) << refused;
}

}  // namespace
}  // namespace harness
