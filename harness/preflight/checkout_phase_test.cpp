// The code under test on a small checkout with a commit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/fake_build.h"
#include "harness/phases/run_alone.h"
#include "harness/provenance/build/git.h"
#include "harness/provenance/capture.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class CheckoutPhase : public testing::Test {
 protected:
  CheckoutPhase() {
    put("CMakeLists.txt", "");
    put("nsa/a.cpp", "1\n");
    put("harness/b.cpp", "1\n");
    git({"init", "-q"});
    git({"add", "."});
    git({"-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "first"});
    write_build_id(bin_, dir_.path());
  }
  void git(std::vector<std::string> arguments) {
    std::vector<std::string> argv = {"git", "-C", dir_.path().string()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    EXPECT_TRUE(capture(argv).ok());
  }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }
  base::protocol::Transcript run(const json& args = json::object(),
                                 bool with_checkout = true) const {
    const TempDir raw;
    return run_alone(raw / "raw.jsonl", args, [&](const BuiltinCall& call, auto& emitter) {
      run_checkout(bin_, with_checkout ? std::optional(dir_.path()) : std::nullopt, call, emitter);
    });
  }
  static json value(const base::protocol::Transcript& transcript, const std::string& name) {
    const auto* found = find_line<base::protocol::Metric>(
        transcript, [&](const auto& m) { return m.name == name; });
    return found == nullptr ? json("absent") : found->value;
  }
  /// The cell beside `fact` in the table of the code.
  static std::string fact(const base::protocol::Transcript& transcript, const std::string& name) {
    const auto* table =
        find_line<base::protocol::Table>(transcript, [](const auto&) { return true; });
    if (table == nullptr) return "no table";
    for (const json& row : table->rows)
      if (row.at(0) == name) return row.at(1).get<std::string>();
    return "absent";
  }

  TempDir dir_, build_;
  fs::path bin_ = build_ / "bin";
};

TEST_F(CheckoutPhase, CleanCodeIsTheCommitAndItsBuild) {
  const auto transcript = run();
  EXPECT_TRUE(transcript.violations.empty());
  EXPECT_EQ(transcript.ended.at("all").status, "ok");
  EXPECT_EQ(value(transcript, "programs.checked_count"), 1);
  EXPECT_EQ(value(transcript, "programs.differ_count"), 0);
  EXPECT_EQ(value(transcript, "sources.differ_count"), 0);
  EXPECT_EQ(fact(transcript, "commit"), git_facts(dir_.path()).commit);
  EXPECT_EQ(fact(transcript, "files that differ from the commit"), "none");
}

TEST_F(CheckoutPhase, ChangedSourcesAndForeignProgramsAreCountedAndNamed) {
  put("nsa/a.cpp", "2\n");
  fs::copy_file("/bin/true", bin_ / "program", fs::copy_options::overwrite_existing);
  const auto transcript = run();
  EXPECT_EQ(value(transcript, "programs.differ_count"), 1);
  EXPECT_EQ(value(transcript, "sources.differ_count"), 1);
  EXPECT_EQ(fact(transcript, "sources changed since the build"), "nsa/a.cpp");
  EXPECT_EQ(fact(transcript, "files that differ from the commit"), "nsa/a.cpp");
  EXPECT_EQ(fact(transcript, "programs that are not those of the build"), "program");
}

TEST_F(CheckoutPhase, TheCommitAskedForIsHeldAgainstTheOneThere) {
  EXPECT_EQ(value(run(), "commit.as_named_bool"), nullptr);
  const std::string commit = git_facts(dir_.path()).commit;
  const auto right = run({{"commit", commit.substr(0, 12)}});
  EXPECT_EQ(value(right, "commit.as_named_bool"), true);
  const auto wrong = run({{"commit", "0000000"}});
  EXPECT_EQ(value(wrong, "commit.as_named_bool"), false);
  const auto* check = find_line<base::protocol::Check>(wrong, [](const auto&) { return true; });
  ASSERT_NE(check, nullptr);
  EXPECT_FALSE(check->ok);
  EXPECT_EQ(check->code, "PROVENANCE_MISMATCH");
  EXPECT_THAT(check->detail, HasSubstr("0000000 was asked for, the code under test is " + commit));
  EXPECT_THAT(run({{"commit", "abc"}}).ended.at("all").reason, HasSubstr("7 hex digits"));
}

/// Nothing that can be known is nothing that fits.
TEST_F(CheckoutPhase, WithoutBuildOrHistoryNothingIsClaimed) {
  fs::remove(bin_ / "build_id.json");
  const auto transcript = run({{"commit", "0000000"}}, /*with_checkout=*/false);
  EXPECT_EQ(value(transcript, "programs.checked_count"), 0);
  EXPECT_EQ(value(transcript, "commit.as_named_bool"), false);
  EXPECT_EQ(fact(transcript, "commit"), "unknown");
  EXPECT_EQ(fact(transcript, "build id of the programs"), "unknown");
}

}  // namespace
}  // namespace harness
