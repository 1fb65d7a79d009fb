#include "harness/evidence/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/ledger.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class VerifyTest : public testing::Test {
 protected:
  void SetUp() override { written_ = finish_mini_run(run_); }

  std::vector<std::string> files_named() const {
    std::vector<std::string> files;
    for (const EvidenceError& problem : verify(run_, render_mini_run).problems)
      files.push_back(problem.file());
    return files;
  }

  /// Writes without fsync: the loops below change thousands of bytes.
  void store(const fs::path& file, const std::string& bytes) const {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }

  /// Forges a ledger that fits the changed files.
  void forge_ledger() const {
    std::vector<LedgerEntry> entries;
    const RunFolder run(run_);
    for (const std::string& path : run.paths())
      if (!is_outside_ledger(path))
        entries.push_back({ledger_kind(path), path, run.sha256(path), run.bytes(path)});
    sort_for_ledger(entries);
    store(run_ / "ledger.jsonl", ledger_text(entries));
  }

  void replace_in(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read_bytes(run_ / file);
    ASSERT_NE(text.find(from), std::string::npos);
    store(run_ / file, text.replace(text.find(from), from.size(), to));
  }

  TempDir dir_;
  fs::path run_ = dir_ / "run";
  Written written_;
};

TEST_F(VerifyTest, FinishedRunIsOk) {
  const Verification v = verify(run_, render_mini_run, written_.head);
  EXPECT_TRUE(v.ok()) << verification_text(v);
  EXPECT_EQ(v.head, written_.head);
  EXPECT_THAT(verification_text(v),
              HasSubstr("evidence: ok, 19 files\nevidence head " + written_.evidence_head +
                        "\nledger head " + written_.head));
}

TEST_F(VerifyTest, AnEvidenceHeadNamesTheFilesItDoesNotCover) {
  store(run_ / "report.html", "replaced");
  forge_ledger();
  const std::string by_evidence =
      verification_text(verify(run_, render_mini_run, written_.evidence_head));
  EXPECT_THAT(by_evidence, HasSubstr("evidence: ok"));
  EXPECT_THAT(by_evidence, HasSubstr("the given evidence head covers the raw evidence only, not"));
  EXPECT_THAT(by_evidence, HasSubstr("report.html"));
  EXPECT_THAT(by_evidence, HasSubstr("drawings are proved by the ledger head"));
  EXPECT_FALSE(verify(run_, render_mini_run, written_.head).ok());
}

TEST_F(VerifyTest, NamesOfFilesDoNotSteerATerminal) {
  store(run_ /
            "phases/\x1b[31mred\xc2\x9b"
            "2J",
        "");
  const std::string text = verification_text(verify(run_, render_mini_run));
  EXPECT_THAT(text, HasSubstr("phases/ [31mred  2J"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, testing::Not(HasSubstr("\x9b")));
}

TEST_F(VerifyTest, ALedgerHeadCoversEverything) {
  const Verification found = verify(run_, render_mini_run, written_.head);
  EXPECT_TRUE(found.uncovered.empty());
  EXPECT_THAT(verification_text(found), testing::Not(HasSubstr("covers the raw evidence only")));
}

TEST_F(VerifyTest, HeadStandsInNoFileItCovers) {
  const RunFolder run(run_);
  for (const std::string& path : run.paths())
    if (path != "ledger.jsonl") {
      EXPECT_THAT(run.read(path), testing::Not(HasSubstr(written_.head))) << path;
    }
}

TEST_F(VerifyTest, AnyChangedByteOfAnyFileNamesTheFile) {
  const RunFolder run(run_);
  for (const std::string& path : run.paths()) {
    const std::string good = read_bytes(run_ / path);
    const size_t stride = std::max<size_t>(1, good.size() / 60);
    for (size_t i = 0; i < good.size(); i += stride) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      store(run_ / path, bad);
      ASSERT_THAT(files_named(), ElementsAre(path)) << "byte " << i;
    }
    store(run_ / path, good.substr(0, good.size() / 2));
    EXPECT_THAT(files_named(), Contains(path)) << "cut in half";
    store(run_ / path, good + "\n");
    EXPECT_THAT(files_named(), ElementsAre(path)) << "one byte more";
    fs::remove(run_ / path);
    EXPECT_THAT(files_named(), ElementsAre(path)) << "removed";
    store(run_ / path, good);
  }
  EXPECT_TRUE(verify(run_, render_mini_run).ok());
}

TEST_F(VerifyTest, AddedFilesAndLinksAreNamed) {
  store(run_ / "phases/speed/g99.jsonl", "{}");
  store(run_ / "report.html", "<html>");
  fs::create_symlink("run.json", run_ / "link");
  EXPECT_THAT(files_named(), ElementsAre("\"link\"", "phases/speed/g99.jsonl", "report.html"));
}

std::map<std::string, std::string> draw_mini_run(const Results&) {
  return {{"report.html", "<html>"}, {"plots/speed.svg", "<svg>"}};
}

TEST_F(VerifyTest, DrawingsAreCoveredByTheirHashesAndTheEvidenceHeadStays) {
  const Written drawn = write_bundle(run_, render_mini_run, draw_mini_run);
  EXPECT_NE(drawn.head, written_.head);
  EXPECT_EQ(drawn.evidence_head, written_.evidence_head);
  EXPECT_TRUE(verify(run_, render_mini_run, written_.evidence_head).ok());
  EXPECT_FALSE(verify(run_, render_mini_run, written_.head).ok());
  store(run_ / "plots/speed.svg", "<svg/>");
  EXPECT_THAT(files_named(), ElementsAre("plots/speed.svg"));
  EXPECT_TRUE(verify_raw(RunFolder(run_)).ok());
}

TEST_F(VerifyTest, RawEvidenceIsJudgedWithoutItsReports) {
  store(run_ / "report.md", "other");
  fs::remove(run_ / "summary.md");
  EXPECT_TRUE(verify_raw(RunFolder(run_)).ok());
  replace_in("phases/speed/g01.jsonl", "\"value\":4.0", "\"value\":9.0");
  store(run_ / "phases/speed/g99.jsonl", "{}");
  const Verification raw = verify_raw(RunFolder(run_));
  ASSERT_EQ(raw.problems.size(), 2U);
  EXPECT_EQ(raw.problems[0].file(), "phases/speed/g01.jsonl");
  EXPECT_EQ(raw.problems[1].file(), "phases/speed/g99.jsonl");
}

TEST_F(VerifyTest, ForgedVerdictIsSeenThroughAFittingLedger) {
  replace_in("results.json", "\"word\":\"GO\"", "\"word\":\"NO\"");
  forge_ledger();
  EXPECT_THAT(files_named(), ElementsAre("results.json"));
}

TEST_F(VerifyTest, ForgedFigureInAReportIsSeenThroughAFittingLedger) {
  replace_in("report.md", "PASS", "FAIL");
  forge_ledger();
  EXPECT_THAT(files_named(), ElementsAre("report.md"));
}

TEST_F(VerifyTest, ForgedSampleIsSeenThroughAFittingLedger) {
  replace_in("phases/speed/g01.jsonl", "\"value\":4.0", "\"value\":9.0");
  forge_ledger();
  EXPECT_THAT(files_named(), Contains("results.json"));
}

TEST_F(VerifyTest, WhollyRederivedForgeryIsSeenByTheHead) {
  replace_in("phases/speed/g01.jsonl", "\"value\":4.0", "\"value\":9.0");
  write_bundle(run_, render_mini_run);
  EXPECT_TRUE(verify(run_, render_mini_run).ok());
  const Verification v = verify(run_, render_mini_run, written_.head);
  ASSERT_EQ(v.problems.size(), 1U);
  EXPECT_THAT(v.problems[0].what(), HasSubstr("not the given " + written_.head));
}

TEST_F(VerifyTest, TarVerifiesLikeItsFolder) {
  bundle(RunFolder(run_), dir_ / "run.tar");
  const Verification v = verify(dir_ / "run.tar", render_mini_run, written_.head);
  EXPECT_TRUE(v.ok()) << verification_text(v);
  std::string bytes = read_bytes(dir_ / "run.tar");
  const size_t at =
      bytes.find("worst_never") == std::string::npos ? bytes.find("\"value\":4.0") : 0;
  bytes[at + 8] = '5';
  store(dir_ / "run.tar", bytes);
  const Verification changed = verify(dir_ / "run.tar", render_mini_run);
  ASSERT_EQ(changed.problems.size(), 1U);
  EXPECT_EQ(changed.problems[0].file(), "phases/speed/g01.jsonl");
}

TEST_F(VerifyTest, DamagedEvidenceOfAFinishedRunDoesNotVerify) {
  fs::remove(run_ / "phases/speed/g02.jsonl");
  const Written again = write_bundle(run_, render_mini_run);
  EXPECT_EQ(again.results.verdict.exit, 6);
  EXPECT_THAT(files_named(), ElementsAre("phases/speed/g02.jsonl"));
}

TEST_F(VerifyTest, ThrowingRendererIsAProblem) {
  const auto broken = [](const Results&) -> std::map<std::string, std::string> {
    throw std::runtime_error("no words");
  };
  const Verification v = verify(run_, broken);
  ASSERT_EQ(v.problems.size(), 1U);
  EXPECT_THAT(v.problems[0].what(), HasSubstr("no words"));
}

TEST(Verify, WhatIsNoRunIsAProblem) {
  TempDir dir;
  EXPECT_FALSE(verify(dir.path(), render_mini_run).ok());
  EXPECT_THROW(verify(dir / "none", render_mini_run), ConfigError) << "no evidence is missing";
  write_bytes(dir / "file", "no tar");
  EXPECT_FALSE(verify(dir / "file", render_mini_run).ok());
}

}  // namespace
}  // namespace harness
