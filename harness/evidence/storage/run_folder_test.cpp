// A run as its readers see it: the same from its folder and from its tar, with every damage named.
#include "harness/evidence/storage/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/hash/sha256.h"
#include "base/json/depth.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/tar.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/storage/testing.h"
#include "harness/evidence/storage/xz.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() { fs::create_directories(run_ / "phases/p"); }
  void put(const std::string& path, const std::string& bytes) const {
    write_bytes(run_ / path, bytes);
  }
  RunFolder open() const { return RunFolder(run_); }
  /// First folder of the paths in an archive of the run.
  std::string top_of_archive() const {
    bundle(open(), dir_ / "run.tar");
    return fs::path(read_tar(dir_ / "run.tar").at(0).path).begin()->string();
  }
  TempDir dir_;
  fs::path run_ = dir_ / "run";
};

TEST_F(RunFolderTest, ListsRegularFilesAndNamesTheRest) {
  put("phases/p/g01.jsonl", "{}\n");
  put("run.json", "{}");
  put("bad\xff", "x");
  fs::create_symlink("run.json", run_ / "link");
  ASSERT_EQ(::mkfifo((run_ / "pipe").c_str(), 0600), 0);
  const RunFolder run = open();
  EXPECT_THAT(run.paths(), ElementsAre("phases/p/g01.jsonl", "run.json"));
  EXPECT_THAT(run.odd_paths(), ElementsAre("\"bad\xef\xbf\xbd\"", "\"link\"", "\"pipe\""));
  EXPECT_TRUE(run.has("run.json"));
  EXPECT_FALSE(run.has("link"));
  EXPECT_FALSE(run.has("phases"));
  EXPECT_EQ(run.where(), run_);
}

TEST_F(RunFolderTest, FolderAndItsTarsAreReadAlike) {
  const std::string binary("a\0\n\xff", 4);
  put("run.json", R"({"id": "mini-1"})");
  put("phases/p/g01.jsonl", binary);
  put("phases/p/empty", "");
  std::vector<fs::path> places = {run_};
  for (const char* name : {"run.tar", "run.tar.gz", "run.tar.xz"}) {
    places.push_back(dir_ / name);
    bundle(open(), places.back());
  }
  EXPECT_TRUE(is_gzip(read_bytes(dir_ / "run.tar.gz")));
  EXPECT_TRUE(is_xz(read_bytes(dir_ / "run.tar.xz")));
  for (const fs::path& place : places) {
    const RunFolder run(place);
    EXPECT_THAT(run.paths(), ElementsAre("phases/p/empty", "phases/p/g01.jsonl", "run.json"));
    EXPECT_EQ(run.read("phases/p/g01.jsonl"), binary) << place;
    EXPECT_EQ(run.read("phases/p/empty"), "");
    EXPECT_EQ(run.bytes("phases/p/g01.jsonl"), 4);
    EXPECT_EQ(run.sha256("phases/p/g01.jsonl"), base::sha256_hex(binary));
    EXPECT_EQ(run.read_json("run.json")["id"], "mini-1");
  }
}

TEST_F(RunFolderTest, WhatIsNoRunIsRefused) {
  const std::string wanted = "is neither a run folder nor a bundle; give the folder of a run";
  EXPECT_THROW(RunFolder("/nowhere"), ConfigError);
  EXPECT_THAT(error_of([] { RunFolder("/dev/null"); }), HasSubstr("/dev/null: " + wanted));
  write_bytes(dir_ / "two.tar", tar_header("a/x", 0) + tar_header("b/y", 0) + tar_end());
  EXPECT_EQ(error_of([&] { RunFolder(dir_ / "two.tar"); }), "two.tar: 'b/y' lies outside of a/");
}

TEST_F(RunFolderTest, MissingAndVanishedFilesAreNamed) {
  put("gone", "12345");
  put("shorter", "12345");
  const RunFolder run = open();
  EXPECT_EQ(error_of([&] { run.read("other"); }), "other: is missing");
  EXPECT_EQ(error_of([&] { run.bytes("other"); }), "other: is missing");
  EXPECT_EQ(error_of([&] { run.sha256("other"); }), "other: is missing");
  fs::remove(run_ / "gone");
  fs::resize_file(run_ / "shorter", 3);
  EXPECT_EQ(error_of([&] { run.read("gone"); }), "gone: cannot be read");
  EXPECT_EQ(error_of([&] { run.read("shorter"); }), "shorter: cannot be read");
}

TEST_F(RunFolderTest, DamagedJsonIsReportedWithItsPlace) {
  put("cut.json", "{\n  \"a\": 1,\n  \"b\"");
  put("word.json", "{\n  \"a\": x}");
  put("empty.json", "");
  put("deep.json", std::string(base::kMaxDepth + 1, '[') + std::string(base::kMaxDepth + 1, ']'));
  const RunFolder run = open();
  const auto error = [&](const char* path) { return error_of([&] { run.read_json(path); }); };
  EXPECT_EQ(error("cut.json"), "cut.json: line 3, column 6: the file is cut off before its end");
  EXPECT_EQ(error("word.json"), "word.json: line 2, column 8: is not JSON");
  EXPECT_EQ(error("empty.json"),
            "empty.json: line 1, column 1: the file is cut off before its end");
  EXPECT_EQ(error("deep.json"),
            "deep.json: nests deeper than " + std::to_string(base::kMaxDepth) + " levels");
  EXPECT_EQ(error("none.json"), "none.json: is missing");
}

/// A damaged run is packed, too, and no id leads out of the folder that it is unpacked into.
TEST_F(RunFolderTest, AnArchivesFolderIsTheIdWhereThatIsAPlainName) {
  const auto folder = [&](const std::string& run_json) {
    put("run.json", run_json);
    return top_of_archive();
  };
  EXPECT_EQ(folder(R"({"id": "Mini_1.2-a"})"), "Mini_1.2-a");
  for (const char* other : {R"({"id": ""})", R"({"id": "."})", R"({"id": ".."})",
                            R"({"id": ".hidden"})", R"({"id": "a/b"})", R"({"id": "a b"})",
                            R"({"id": "\u00e9"})", R"({"id": 7})", "{}", "[]", "{", ""})
    EXPECT_EQ(folder(other), "run") << other;
  fs::remove(run_ / "run.json");
  put("other", "");
  EXPECT_EQ(top_of_archive(), "run");
}

TEST_F(RunFolderTest, ABundleIsNotWrittenIntoItsRun) {
  put("run.json", R"({"id": "mini-1"})");
  fs::create_directory_symlink(run_, dir_ / "alias");
  for (const fs::path& out : {run_ / "run.tar", run_ / "phases/p/run.tar",
                              run_ / "phases/../run.tar", dir_ / "alias/run.tar"}) {
    EXPECT_THAT(error_of([&] { bundle(open(), out); }), HasSubstr("would lie inside of the run"))
        << out;
    EXPECT_FALSE(fs::exists(out));
  }
  EXPECT_EQ(error_of([&] { bundle(open(), dir_ / "run.tar"); }), "no error");
  EXPECT_EQ(error_of([&] { bundle(open(), dir_ / "run-2"); }), "no error") << "a name like the run";
}

TEST_F(RunFolderTest, ABundleIsWholeOrNotThere) {
  put("run.json", R"({"id": "mini-1"})");
  const std::string hash = bundle(open(), dir_ / "run.tar");
  EXPECT_EQ(hash, sha256_file(dir_ / "run.tar"));
  EXPECT_THAT(error_of([&] { bundle(open(), dir_ / "no/run.tar"); }),
              HasSubstr("cannot write the bundle " + (dir_ / "no/run.tar").string()));
  fs::create_directory(dir_ / "taken");
  EXPECT_THAT(error_of([&] { bundle(open(), dir_ / "taken"); }), HasSubstr("cannot write"));
  EXPECT_FALSE(fs::exists(dir_ / "taken.part"));
  fs::create_symlink("/dev/full", dir_ / "full.tar.part");
  EXPECT_THAT(error_of([&] { bundle(open(), dir_ / "full.tar"); }), HasSubstr("has space"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(dir_ / "full.tar.part")));
  EXPECT_FALSE(fs::exists(dir_ / "full.tar"));
}

}  // namespace
}  // namespace harness
