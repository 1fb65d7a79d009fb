#include "harness/cli/paths.h"

#include <gmock/gmock.h>

#include <array>
#include <set>
#include <thread>
#include <vector>

#include "base/testing/paths.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;

TEST(Paths, TheProgramIsThisOne) {
  EXPECT_EQ(program_dir(), fs::canonical(fs::path(base::build_dir()) / "bin"));
  EXPECT_EQ(fs::canonical(checkout_dir()), fs::canonical(base::source_dir()));
}

TEST(Paths, AGivenFolderIsTheOnlyOneTried) {
  EXPECT_EQ(configs_dir(shipped_configs()), fs::path(shipped_configs()));
  const TempDir dir;
  const std::string error = error_of([&] { configs_dir(dir.path().string()); });
  EXPECT_THAT(error, HasSubstr("no folder with runbooks/ and kinds/ at " + dir.path().string()));
  EXPECT_THAT(error, HasSubstr("--configs DIR"));
}

TEST(Paths, WithoutAFolderTheShippedOneIsFound) {
  EXPECT_TRUE(fs::exists(configs_dir("") / "runbooks" / "smoke_cpu.json"));
}

TEST(Paths, CorporaAreThoseOfHereThenThoseAboveTheProgram) {
  const TempDir dir;
  const WorkingDir there(dir.path());
  const fs::path of_checkout = fs::path(base::source_dir()) / ".data";
  if (fs::exists(of_checkout) && program_dir().string().starts_with(base::source_dir())) {
    EXPECT_EQ(fs::canonical(data_dir()), fs::canonical(of_checkout));
  }
  fs::create_directories(".data");
  EXPECT_EQ(data_dir(), fs::current_path() / ".data");
}

TEST(Paths, TheNewestFinishedRunCounts) {
  const TempDir dir;
  const WorkingDir there(dir.path());
  EXPECT_THAT(error_of(newest_run), HasSubstr("no finished run in runs/"));
  for (const char* name : {"a", "b", "unfinished"}) fs::create_directories(fs::path("runs") / name);
  EXPECT_THAT(error_of(newest_run), HasSubstr("no finished run in runs/"));
  write_bytes("runs/a/results.json", "{}");
  write_bytes("runs/b/results.json", "{}");
  write_bytes("runs/stray", "");
  fs::last_write_time("runs/b/results.json",
                      fs::last_write_time("runs/a/results.json") - std::chrono::hours(1));
  EXPECT_EQ(newest_run(), fs::path("runs/a"));
}

TEST(Paths, EveryRunOfOneSecondHasAFolderOfItsOwn) {
  const TempDir dir;
  const WorkingDir there(dir.path());
  constexpr int kThreads = 8, kCallsEach = 10;
  std::array<std::vector<fs::path>, kThreads> made;
  std::vector<std::thread> threads;
  for (auto& mine : made)
    threads.emplace_back([&mine] {
      for (int call = 0; call < kCallsEach; ++call) mine.push_back(new_run_folder("mini"));
    });
  for (std::thread& thread : threads) thread.join();
  std::set<fs::path> folders;
  for (const auto& mine : made) folders.insert(mine.begin(), mine.end());
  EXPECT_EQ(folders.size(), size_t{kThreads * kCallsEach});
  for (const fs::path& folder : folders) {
    EXPECT_TRUE(fs::is_directory(folder) && fs::is_empty(folder)) << folder;
    EXPECT_THAT(folder.string(), MatchesRegex("runs/mini-20[0-9]+T[0-9]+Z(-[0-9]+)?"));
  }
}

TEST(Paths, ARunFolderThatCannotBeCreatedIsNamed) {
  const TempDir dir;
  const WorkingDir there(dir.path());
  write_bytes("runs", "a file");
  try {
    new_run_folder("mini");
    ADD_FAILURE() << "created in a file";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot create runs/mini-20"));
    EXPECT_THAT(error.what(), HasSubstr("--out DIR"));
  }
}

TEST(Paths, ADeletedWorkingDirectoryIsNamed) {
  const TempDir dir;
  fs::create_directories(dir / "gone");
  const WorkingDir there(dir / "gone");
  EXPECT_EQ(error_of(require_working_directory), "");
  fs::remove(dir / "gone");
  EXPECT_THAT(error_of(require_working_directory),
              HasSubstr("the working directory cannot be used"));
  EXPECT_THAT(error_of(require_working_directory), HasSubstr("cd DIR"));
}

}  // namespace
}  // namespace harness::cli
