// verify names the file after any byte of it was changed, and files that came or went.
#include <gmock/gmock.h>

#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void expect_named(const fs::path& run, const std::string& name, const std::string& what) {
  const Outcome verified = validate({"verify", run.string()});
  EXPECT_EQ(verified.exit_code, 6) << what << " of " << name << "\n" << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("evidence: " + name + ":")) << what;
}

TEST(Tampered, ChangedByteOfAnyFileNamesTheFile) {
  const fs::path run = copy_of_mini_run("tampered");
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().lexically_relative(run).generic_string();
    const std::string before = read_file(entry.path());
    ++files;
    if (before.empty()) {
      write_file(entry.path(), "x");
      expect_named(run, name, "a byte that came");
    }
    for (size_t at : {size_t{0}, before.size() / 2, before.size() - 1}) {
      if (before.empty()) break;
      std::string after = before;
      after[at] = static_cast<char>(after[at] ^ 1);
      write_file(entry.path(), after);
      expect_named(run, name, "byte " + std::to_string(at));
    }
    write_file(entry.path(), before);
  }
  EXPECT_GE(files, 20);
  EXPECT_EQ(validate({"verify", run.string()}).exit_code, 0) << "everything was put back";
}

TEST(Tampered, RemovedAndAddedFilesAreNamed) {
  const fs::path run = copy_of_mini_run("moved_files");
  for (const char* name : {"report.md", "results.json", "run.json", "ledger.jsonl"}) {
    const std::string before = read_file(run / name);
    fs::remove(run / name);
    expect_named(run, name, "removal");
    write_file(run / name, before);
  }
  write_file(run / "phases" / "gate_health" / "g02.jsonl", "{}\n");
  expect_named(run, "phases/gate_health/g02.jsonl", "appearance");
}

TEST(Tampered, BundleWithAChangedByteIsNotAccepted) {
  const fs::path tar = fresh_dir("tampered.tar");
  ASSERT_EQ(validate({"bundle", mini_run().string(), "--out", tar.string()}).exit_code, 0);
  std::string bytes = read_file(tar);
  const size_t at = bytes.find("\"GO\"");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = 'N';
  write_file(tar, bytes);
  const Outcome verified = validate({"verify", tar.string()});
  EXPECT_EQ(verified.exit_code, 6) << verified.output;
}

}  // namespace
}  // namespace suites::end_to_end
