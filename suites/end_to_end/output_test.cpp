// Output that goes nowhere: a full disk behind standard output or behind the file that was asked
// for. Nothing of that is green, and an old file stays.
#include <gmock/gmock.h>

#include "suites/end_to_end/command.h"

#include "base/testing/paths.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

std::string tool(const std::string& name) { return base::build_dir() + "/bin/" + name; }

/// Runs a program whose standard output is a full disk.
Outcome run_with_full_stdout(const std::vector<std::string>& argv) {
  std::vector<std::string> all = {"/bin/sh", "-c", "exec \"$0\" \"$@\" > /dev/full"};
  all.insert(all.end(), argv.begin(), argv.end());
  return run(all);
}

TEST(Output, LostOutputEndsWithFault) {
  const std::string mini = mini_run().string();
  const std::vector<std::vector<std::string>> commands = {
      {"--help"},
      {"--version"},
      {"list"},
      {"list", "--json"},
      {"plan", "--runbook", runbook("mini")},
      {"doctor"},
      {"schema", "runbook"},
      {"verify", mini},
      {"explain", mini, "C-gate.stuck"},
      {"compare", mini, mini},
      {"bundle", mini, "--out", fresh_dir("full_disk.tar").string()},
      {"history", "--db", fresh_dir("full_disk.sqlite").string(), "import", mini}};
  for (std::vector<std::string> words : commands) {
    const std::string name = words.front();
    words.insert(words.begin(), program());
    const Outcome done = run_with_full_stdout(words);
    EXPECT_EQ(done.exit_code, 3) << name << "\n" << done.output;
    EXPECT_THAT(done.output, AnyOf(HasSubstr("cannot write standard output: No space left"),
                                   HasSubstr("cannot write to file: No space left")))
        << name;
  }
}

/// The exit code still reports what is wrong with a run.
TEST(Output, LostOutputKeepsTheExitCode) {
  const fs::path dir = copy_of_mini_run("full_disk_damage");
  write_file(dir / "plan.json", "{}");
  EXPECT_EQ(run_with_full_stdout({program(), "verify", dir.string()}).exit_code, 6);
}

/// A disk of 64 KiB in a mount namespace of its own; "$1" is where it lies.
class SmallDisk : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(disk_);
    if (on_disk("true").exit_code != 0) GTEST_SKIP() << "no tmpfs of one's own is permitted here";
  }
  Outcome on_disk(const std::string& script, const std::vector<std::string>& args = {},
                  const std::string& zero = "sh") const {
    const std::string mount =
        "disk=$1; shift; mount -t tmpfs -o size=64k none \"$disk\" || exit 99; ";
    std::vector<std::string> argv = {"/usr/bin/unshare", "-rm", "/bin/sh",     "-c",
                                     mount + script,     zero,  disk_.string()};
    argv.insert(argv.end(), args.begin(), args.end());
    return run(argv);
  }
  /// Fills the disk, then runs "$@" with the disk's folder for every DISK.
  Outcome full(std::vector<std::string> argv) const {
    for (std::string& word : argv)
      if (const size_t at = word.find("DISK"); at != std::string::npos)
        word.replace(at, 4, disk_.string());
    return on_disk(
        "echo before > \"$disk/kept\"; dd if=/dev/zero of=\"$disk/fill\" bs=1k 2> /dev/null; "
        "\"$@\"; code=$?; find \"$disk\" -name '*.part' | sed 's/^/half: /'; cat \"$disk/kept\"; "
        "exit $code",
        argv);
  }
  const fs::path disk_ = fresh_dir("small_disk");
};

TEST_F(SmallDisk, EveryProgramNamesTheFileThatItCannotWriteAndLeavesNoHalfOfIt) {
  const std::string mini = mini_run().string();
  const fs::path text = fresh_dir("small_disk_text.txt");
  write_file(text, std::string(200'000, 'x'));
  const std::vector<std::vector<std::string>> calls = {
      {program(), "bundle", mini, "--out", "DISK/kept"},
      {program(), "history", "--db", "DISK/h.sqlite", "import", mini},
      {program(), "--runbook", runbook("mini"), "--out", "DISK/run"},
      {program(), "ab-rate", "--runbook", "ab_rate_cpu", "--runs", "1", "--out", "DISK/rate"},
      {tool("nsa-data"), "--in", text.string(), "--out", "DISK/corpus"},
      {tool("nsa-train"), "--model", "tiny_cpu", "--data", "synthetic", "--steps", "2", "--out",
       "DISK/train"}};
  for (const auto& call : calls) {
    const Outcome done = full(call);
    EXPECT_THAT(done.exit_code, AnyOf(2, 3)) << call[1] << "\n" << done.output;
    EXPECT_THAT(done.output, AnyOf(HasSubstr(disk_.string()), HasSubstr("where the results go")))
        << call[1];
    EXPECT_THAT(done.output, HasSubstr("before\n")) << call[1] << ": the old file is gone";
    EXPECT_THAT(done.output, testing::Not(HasSubstr("half: "))) << done.output;
  }
}

/// Reading needs no room; what is full is not to be removed.
TEST_F(SmallDisk, AHistoryIsReadWhereNothingCanBeWritten) {
  const Outcome done = on_disk(
      "db=\"$disk/h.sqlite\"; \"$0\" history --db \"$db\" import \"$1\"; "
      "dd if=/dev/zero of=\"$disk/fill\" bs=1k 2> /dev/null; "
      "mount -o remount,ro \"$disk\"; \"$0\" history --db \"$db\" list; echo list=$?; "
      "\"$0\" history --db \"$disk/new\" list; echo new=$?",
      {mini_run().string()}, program());
  EXPECT_THAT(done.output, HasSubstr("imported"));
  EXPECT_THAT(done.output, HasSubstr("GO  mini-"));
  EXPECT_THAT(done.output, HasSubstr("list=0"));
  EXPECT_THAT(done.output, HasSubstr("new=3"));
  const Outcome full_disk =
      full({program(), "history", "--db", "DISK/h.sqlite", "import", mini_run().string()});
  EXPECT_THAT(full_disk.output, HasSubstr("make room and call this again"));
}

}  // namespace
}  // namespace suites::end_to_end
