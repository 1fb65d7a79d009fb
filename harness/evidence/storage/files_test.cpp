#include "harness/evidence/storage/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/error.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/storage/testing.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(Files, WriteReplacesWholeFileAndLeavesNoPart) {
  TempDir dir;
  write_bytes(dir / "f", "long content");
  write_bytes(dir / "f", "new");
  EXPECT_EQ(read_bytes(dir / "f"), "new");
  EXPECT_FALSE(fs::exists(dir / "f.part"));
}

TEST(Files, ErrorsNamePathAndReason) {
  TempDir dir;
  EXPECT_THAT(error_of([&] { read_bytes(dir / "none"); }), HasSubstr("none"));
  EXPECT_THAT(error_of([&] { read_bytes(dir.path()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { sha256_file(dir / "none"); }),
              HasSubstr("cannot read " + (dir / "none").string()));
  EXPECT_THAT(error_of([&] { write_bytes(dir / "no/f", "x"); }), HasSubstr("No such file"));
}

TEST(Files, FullDiskIsReported) {
  if (!fs::exists("/dev/full")) GTEST_FAIL() << "/dev/full is wanted for this test";
  TempDir dir;
  fs::create_symlink("/dev/full", dir / "f.part");
  EXPECT_THAT(error_of([&] { write_bytes(dir / "f", "x"); }), HasSubstr("free disk space"));
}

}  // namespace
}  // namespace harness
