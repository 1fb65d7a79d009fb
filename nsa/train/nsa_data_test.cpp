// The program nsa-data as a process.
#include "base/testing/paths.h"
#include "nsa/train/program_testing.h"

namespace nsa::train {
namespace {

TEST_F(ProgramTest, MakesCorpusFromParquetAndReportsNulls) {
  const std::string file =
      base::source_dir() + "/nsa/train/data/documents/testdata/pyarrow.parquet";
  ASSERT_EQ(shell(program("nsa-data") + " --in " + file + " --out .data/rows > out"), 0);
  EXPECT_THAT(slurp("out"), HasSubstr("3 of 12 rows skipped: null in column text"));
  EXPECT_EQ(shell(program("nsa-data") + " --in " + file + " --field score --out x 2> err"), 2);
  EXPECT_THAT(slurp("err"), HasSubstr("column score must be text (string), got DOUBLE"));
  EXPECT_FALSE(fs::exists(dir_ / "x" / "manifest.json"));
}

TEST_F(ProgramTest, ReadsAPipeWithFormatOption) {
  const std::string call = program("nsa-data") + " --in /dev/stdin --out piped ";
  EXPECT_EQ(shell("printf '{\"text\":\"a\"}\\n{\"text\":null}\\n' | " + call +
                  "--format jsonl > out 2> err"),
            0)
      << slurp("err");
  EXPECT_THAT(slurp("out"), HasSubstr("1 of 2 rows skipped: null in column text"));
  EXPECT_EQ(shell("yes | " + call + "2> err"), 2) << "refused before it is read";
  EXPECT_THAT(slurp("err"), HasSubstr("give text under another name with --format"));
  EXPECT_EQ(shell("printf 'a\\000b' | " + call + "--format txt > out"), 0);
  EXPECT_THAT(slurp("out"), HasSubstr("1 NUL bytes inside the text"));
}

TEST_F(ProgramTest, OfTwoWritersOfOneFolderOneIsRefused) {
  EXPECT_EQ(shell("mkfifo slow; echo theirs > t.txt; " + program("nsa-data") +
                  " --in slow --format txt --out c > out & first=$!; exec 9> slow; sleep 0.3; " +
                  program("nsa-data") +
                  " --in t.txt --out c 2> err; second=$?; echo ours >&9; exec 9>&-; wait $first; "
                  "test $? = 0 -a $second = 2"),
            0);
  EXPECT_THAT(slurp("err"), HasSubstr("another nsa-data writes into c"));
  EXPECT_EQ(slurp("c/train_00000.tokens"), std::string("ours\n\0", 6));
}

/// Without the library the program still starts, reads text, and names what Parquet needs.
TEST_F(ProgramTest, ParquetWithoutItsLibrary) {
  fs::create_directories(dir_ / "bin");
  fs::copy_file(program("nsa-data"), dir_ / "bin" / "nsa-data");
  std::ofstream(dir_ / "t.txt") << "text";
  EXPECT_EQ(shell("bin/nsa-data --in t.txt --out a > out"), 0);
  EXPECT_EQ(shell("bin/nsa-data --in " + base::source_dir() +
                  "/nsa/train/data/documents/testdata/pyarrow.parquet --out b 2> err"),
            2);
  EXPECT_THAT(slurp("err"), ::testing::AllOf(HasSubstr("cannot read Parquet here"),
                                             HasSubstr("pyarrow 2"), HasSubstr("LD_LIBRARY_PATH")));
}

}  // namespace
}  // namespace nsa::train
