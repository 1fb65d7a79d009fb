#include "harness/preflight/leftovers.h"

#include <gmock/gmock.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

TEST(Leftovers, HalfWrittenAndStopFilesAreNamedAndStay) {
  const TempDir dir;
  fs::create_directories(dir / "a/b");
  write_bytes(dir / "a/b/shard.part", "half");
  write_bytes(dir / "a/STOP", "");
  write_bytes(dir / "a/results.json", "{}");
  const std::string found = stale_leftovers(dir / "a");
  EXPECT_THAT(found, HasSubstr("a/b/shard.part"));
  EXPECT_THAT(found, HasSubstr("a/STOP"));
  EXPECT_THAT(found, Not(HasSubstr("results.json")));
  EXPECT_TRUE(fs::exists(dir / "a/STOP"));
}

TEST(Leftovers, ManyAreCounted) {
  const TempDir dir;
  for (int i = 0; i < 14; ++i) {
    fs::create_directories(dir / ("r" + std::to_string(i)));
    write_bytes(dir / ("r" + std::to_string(i)) / "STOP", "");
  }
  EXPECT_THAT(stale_leftovers(dir / ""), HasSubstr(" more"));
}

TEST(Leftovers, AFolderThatIsNotThereHasNone) {
  EXPECT_THAT(stale_leftovers("/nonexistent/runs"), Not(HasSubstr("/nonexistent")));
}

}  // namespace
}  // namespace harness
