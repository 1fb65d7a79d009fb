#include "harness/evidence/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/error.h"
#include "harness/evidence/run_folder.h"
#include "harness/evidence/sha256.h"
#include "harness/evidence/temp_dir.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Sha256, AgreesWithFips180Examples) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, FileEqualsBytes) {
  TempDir dir;
  const std::string bytes(200000, 'x');
  write_bytes(dir / "f", bytes);
  EXPECT_EQ(sha256_file(dir / "f"), sha256_hex(bytes));
  EXPECT_THAT(error_of([&] { sha256_file(dir / "none"); }), HasSubstr("cannot read"));
  EXPECT_THAT(error_of([&] { sha256_file(dir.path()); }), HasSubstr("cannot read"));
}

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
  EXPECT_THAT(error_of([&] { write_bytes(dir / "no/f", "x"); }), HasSubstr("No such file"));
}

TEST(Files, FullDiskIsSaid) {
  if (!fs::exists("/dev/full")) GTEST_FAIL() << "/dev/full is wanted for this test";
  TempDir dir;
  fs::create_symlink("/dev/full", dir / "f.part");
  EXPECT_THAT(error_of([&] { write_bytes(dir / "f", "x"); }), HasSubstr("free disk space"));
}

TEST(RunFolder, ListsRegularFilesAndNamesTheRest) {
  TempDir dir;
  fs::create_directories(dir / "phases/p");
  write_bytes(dir / "phases/p/g01.jsonl", "{}\n");
  write_bytes(dir / "run.json", "{}");
  fs::create_symlink("/etc/passwd", dir / "link");
  write_bytes(dir / "bad\xff", "x");
  const RunFolder run(dir.path());
  EXPECT_THAT(run.paths(), ElementsAre("phases/p/g01.jsonl", "run.json"));
  EXPECT_THAT(run.odd_paths(), ElementsAre("\"bad\xef\xbf\xbd\"", "\"link\""));
}

TEST(RunFolder, CutJsonIsSaidWithItsPlace) {
  TempDir dir;
  write_bytes(dir / "a.json", "{\n  \"a\": 1,\n  \"b\"");
  write_bytes(dir / "b.json", "{\n  \"a\": x}");
  const RunFolder run(dir.path());
  EXPECT_THAT(error_of([&] { run.read_json("a.json"); }), HasSubstr("a.json: line 3"));
  EXPECT_THAT(error_of([&] { run.read_json("a.json"); }), HasSubstr("cut off before its end"));
  EXPECT_THAT(error_of([&] { run.read_json("b.json"); }),
              HasSubstr("b.json: line 2, column 8: is not JSON"));
  EXPECT_THAT(error_of([&] { run.read_json("c.json"); }), HasSubstr("c.json: is missing"));
  EXPECT_THAT(error_of([] { RunFolder("/nowhere"); }),
              HasSubstr("neither a run folder nor a bundle"));
}

}  // namespace
}  // namespace harness
