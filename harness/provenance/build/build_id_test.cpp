#include "harness/provenance/build/build_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/paths.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/build/elf_note.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// A checkout with one source a folder, and a folder with a program built from it.
class BuildIdTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"nsa", "harness", "suites", "reports/samples/run"})
      fs::create_directories(source_ / folder);
    write_bytes(source_ / "CMakeLists.txt", "project(x)");
    write_bytes(source_ / "nsa/a.cpp", "int a;");
    write_bytes(source_ / "nsa/README.md", "words");
    write_bytes(source_ / "reports/samples/run/results.json", "{}");
    fs::create_directories(bin_);
    fs::copy_file("/proc/self/exe", bin_ / "program");
    built_.compiler = "GNU 12";
    built_.flags = "-O2";
    built_.files = hash_sources(source_);
    built_.id = build_id_of(built_.files, built_.compiler, built_.flags);
    add_program(built_, bin_, "program");
    built_.commit = "c0ffee";
    write_bytes(bin_ / "build_id.json", pretty_dump(to_json(built_)));
  }

  TempDir dir_;
  fs::path source_ = dir_ / "source", bin_ = dir_ / "bin";
  BuildId built_;
};

TEST_F(BuildIdTest, UntouchedCheckoutIsEqual) {
  const BuildIdCheck check = check_build_id(bin_, source_);
  EXPECT_TRUE(check.equal) << check.problem;
  EXPECT_EQ(check.built, check.checkout);
  EXPECT_EQ(check.problem, "");
  EXPECT_THAT(built_.files, testing::SizeIs(2));
}

TEST_F(BuildIdTest, ChangedAddedAndRemovedSourcesAreNamed) {
  write_bytes(source_ / "nsa/a.cpp", "int b;");
  write_bytes(source_ / "suites/new.cpp", "");
  const BuildIdCheck check = check_build_id(bin_, source_);
  EXPECT_FALSE(check.equal);
  EXPECT_THAT(check.differing_files, ElementsAre("nsa/a.cpp", "suites/new.cpp"));
  EXPECT_THAT(check.problem, HasSubstr("nsa/a.cpp, suites/new.cpp"));
  fs::remove(source_ / "nsa/a.cpp");
  fs::remove(source_ / "suites/new.cpp");
  EXPECT_THAT(check_build_id(bin_, source_).differing_files, ElementsAre("nsa/a.cpp"));
}

TEST_F(BuildIdTest, DocumentsAndSamplesAreNoSources) {
  write_bytes(source_ / "nsa/README.md", "other words");
  write_bytes(source_ / "reports/samples/run/results.json", "[]");
  EXPECT_TRUE(check_build_id(bin_, source_).equal);
}

TEST_F(BuildIdTest, AnotherProgramIsNamed) {
  fs::copy_file("/bin/true", bin_ / "program", fs::copy_options::overwrite_existing);
  const BuildIdCheck check = check_build_id(bin_, source_);
  EXPECT_FALSE(check.equal);
  EXPECT_THAT(check.differing_programs, ElementsAre("program"));
  EXPECT_THAT(check.problem, HasSubstr("not those of the recorded build: program"));
}

TEST_F(BuildIdTest, APatchedProgramThatKeptItsNoteIsNamed) {
  std::string bytes = read_bytes(bin_ / "program");
  write_bytes(bin_ / "program", bytes + "patch");
  ASSERT_EQ(gnu_build_id(bin_ / "program"), built_.programs.at("program"));
  const BuildIdCheck check = check_build_id(bin_, source_);
  EXPECT_FALSE(check.equal);
  EXPECT_THAT(check.differing_programs, ElementsAre("program"));
  EXPECT_FALSE(check_build_id(bin_, std::nullopt).installed);
}

TEST_F(BuildIdTest, AProgramThatTheRecordLeavesOutIsNamed) {
  fs::copy_file(bin_ / "program", bin_ / "nsa-worker");
  EXPECT_THAT(check_build_id(bin_, source_).differing_programs, ElementsAre("nsa-worker"));
  built_.contents.erase("program");
  write_bytes(bin_ / "build_id.json", pretty_dump(to_json(built_)));
  EXPECT_THAT(check_build_id(bin_, source_).differing_programs,
              ElementsAre("program", "nsa-worker"));
}

TEST_F(BuildIdTest, ATargetOfFewerProgramsKeepsThoseOfTheSameSources) {
  BuildId fewer = built_;
  fewer.programs.clear();
  fewer.contents.clear();
  BuildId later = fewer;
  later.id = std::string(64, '0');
  keep_known_programs(fewer, bin_);
  EXPECT_EQ(fewer.contents, built_.contents);
  EXPECT_EQ(fewer.programs, built_.programs);
  keep_known_programs(later, bin_);
  EXPECT_TRUE(later.contents.empty()) << "of other sources";
  write_bytes(bin_ / "program", "changed");
  fewer.programs.clear();
  fewer.contents.clear();
  keep_known_programs(fewer, bin_);
  EXPECT_TRUE(fewer.contents.empty()) << "another program";
}

TEST_F(BuildIdTest, AnInstallationRecordsTheContentsOfTheSameProgramsAgain) {
  write_bytes(bin_ / "program", read_bytes(bin_ / "program") + "other search path");
  refresh_contents(bin_);
  EXPECT_TRUE(check_build_id(bin_, source_).equal);
  fs::copy_file("/bin/true", bin_ / "program", fs::copy_options::overwrite_existing);
  EXPECT_THROW(refresh_contents(bin_), std::exception);
}

TEST_F(BuildIdTest, WithoutCheckoutTheRecordedCommitIsReported) {
  const BuildIdCheck check = check_build_id(bin_, std::nullopt);
  EXPECT_FALSE(check.equal);
  EXPECT_TRUE(check.installed);
  EXPECT_EQ(check.problem, "no checkout: commit recorded at build time: c0ffee");
  built_.files["nsa/a.cpp"] = "00";
  write_bytes(bin_ / "build_id.json", pretty_dump(to_json(built_)));
  EXPECT_FALSE(check_build_id(bin_, std::nullopt).installed);
}

TEST_F(BuildIdTest, WithoutBuildIdNothingIsKnown) {
  fs::remove(bin_ / "build_id.json");
  const BuildIdCheck check = check_build_id(bin_, source_);
  EXPECT_FALSE(check.equal);
  EXPECT_THAT(check.problem, HasSubstr("no build_id.json"));
}

TEST_F(BuildIdTest, EditedIdIsNotEqual) {
  built_.id[0] = built_.id[0] == '0' ? '1' : '0';
  write_bytes(bin_ / "build_id.json", pretty_dump(to_json(built_)));
  const BuildIdCheck check = check_build_id(bin_, source_);
  EXPECT_FALSE(check.equal);
  EXPECT_THAT(check.problem, HasSubstr("contradicts itself"));
}

TEST_F(BuildIdTest, DamagedFileIsAnError) {
  write_bytes(bin_ / "build_id.json", "{\"build_id\":");
  EXPECT_THROW(
      {
        try {
          read_build_id(bin_);
        } catch (const std::exception& e) {
          EXPECT_THAT(e.what(), HasSubstr("is damaged"));
          throw;
        }
      },
      std::exception);
}

TEST(BuildId, CompilerAndFlagsCount) {
  const FileHashes files = {{"a", "00"}};
  EXPECT_NE(build_id_of(files, "GNU 12", "-O2"), build_id_of(files, "GNU 13", "-O2"));
  EXPECT_NE(build_id_of(files, "GNU 12", "-O2"), build_id_of(files, "GNU 12", "-O3"));
}

TEST(ElfNote, ProgramsHaveOneAndOtherFilesHaveNone) {
  EXPECT_EQ(gnu_build_id("/proc/self/exe").size(), 40U);
  EXPECT_EQ(gnu_build_id(fs::path(base::source_dir()) / "CMakeLists.txt"), "");
  EXPECT_EQ(gnu_build_id("/nowhere"), "");
}

}  // namespace
}  // namespace harness
