#include "harness/evidence/storage/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kLongPath = "phases/p/out/" + std::string(90, 'a') + "/" + std::string(90, 'b');
const std::string kVeryLongPath =
    "phases/p/out/" + std::string(200, 'c') + "/" + std::string(240, 'd');

void make_run(const fs::path& dir) {
  for (const std::string& path : {kLongPath, kVeryLongPath, std::string("phases/p/g01.jsonl")}) {
    fs::create_directories((dir / path).parent_path());
    write_bytes(dir / path, "content of " + path);
  }
  write_bytes(dir / "run.json", R"({"id": "mini-1"})");
  write_bytes(dir / "empty", "");
  write_bytes(dir / "block", std::string(1024, 'x'));
}

std::string problem_of(const fs::path& archive) {
  try {
    read_tar(archive);
  } catch (const EvidenceError& e) {
    return e.message();
  }
  return "";
}

TEST(Tar, RoundTripKeepsEveryFile) {
  TempDir dir;
  make_run(dir / "run");
  bundle(RunFolder(dir / "run"), dir / "run.tar");
  const RunFolder folder(dir / "run"), archive(dir / "run.tar");
  EXPECT_EQ(folder.paths(), archive.paths());
  EXPECT_EQ(folder.paths().size(), 6U);
  for (const std::string& path : folder.paths()) EXPECT_EQ(folder.read(path), archive.read(path));
}

TEST(Tar, BytesDependOnNothingButTheFiles) {
  TempDir dir;
  make_run(dir / "one");
  make_run(dir / "two");
  fs::permissions(dir / "two/block", fs::perms::owner_all);
  fs::last_write_time(dir / "two/block", fs::file_time_type::clock::now() - std::chrono::hours(5));
  EXPECT_EQ(bundle(RunFolder(dir / "one"), dir / "one.tar"),
            bundle(RunFolder(dir / "two"), dir / "two.tar"));
  EXPECT_EQ(read_bytes(dir / "one.tar"), read_bytes(dir / "two.tar"));
  write_bytes(dir / "two/empty", "x");
  EXPECT_NE(bundle(RunFolder(dir / "one"), dir / "one.tar"),
            bundle(RunFolder(dir / "two"), dir / "two.tar"));
}

TEST(Tar, TheSystemsTarReadsIt) {
  TempDir dir;
  make_run(dir / "run");
  bundle(RunFolder(dir / "run"), dir / "run.tar");
  const std::string command =
      "cd " + dir.path().string() + " && tar xf run.tar 2>&1 && diff -r run mini-1 >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(Tar, ReadsWhatTheSystemsTarWrote) {
  TempDir dir;
  make_run(dir / "run");
  fs::remove_all(dir / "run/phases");
  const std::string command =
      "cd " + dir.path().string() + " && tar --format=ustar -cf other.tar run";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(RunFolder(dir / "other.tar").paths(), RunFolder(dir / "run").paths());
}

TEST(Tar, DamageIsNamed) {
  TempDir dir;
  make_run(dir / "run");
  bundle(RunFolder(dir / "run"), dir / "run.tar");
  const std::string good = read_bytes(dir / "run.tar");
  const auto problem = [&](const std::string& bytes) {
    std::ofstream(dir / "bad.tar", std::ios::binary) << bytes;
    return problem_of(dir / "bad.tar");
  };
  for (size_t size = 0; size < good.size(); size += 300)
    EXPECT_NE(problem(good.substr(0, size)), "") << size;
  for (size_t i = 0; i < 512; ++i) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_NE(problem(changed), "") << "header byte " << i;
  }
  std::string changed = good;
  changed[changed.size() - 1] = 'x';
  EXPECT_EQ(problem(changed), "bytes behind the end are not zero");
}

TEST(Tar, HostileMembersAreRefused) {
  TempDir dir;
  const auto problem = [&](const std::string& bytes) {
    write_bytes(dir / "bad.tar", bytes + tar_end());
    return problem_of(dir / "bad.tar");
  };
  EXPECT_EQ(problem(tar_header("a/../../etc/x", 0)), "'a/../../etc/x' leaves the archive");
  EXPECT_EQ(problem(tar_header("/etc/x", 0)), "'/etc/x' leaves the archive");
  EXPECT_EQ(problem(tar_header("a/x", 0) + tar_header("a/x", 0)), "holds 'a/x' twice");
  EXPECT_EQ(problem(tar_header("a/x", 1ULL << 32)), "the archive is cut off before its end");
  EXPECT_EQ(problem(""), "");
  write_bytes(dir / "two.tar", tar_header("a/x", 0) + tar_header("b/x", 0) + tar_end());
  EXPECT_THROW(RunFolder(dir / "two.tar"), EvidenceError);
}

}  // namespace
}  // namespace harness
