// Closing a run: results, reports, drawings, then the ledger over all of them.
#include "harness/evidence/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/ledger.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/verify.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::map<std::string, std::string> draw(const Results& results) {
  return {{"report.html", results.verdict.word}, {"plots/speed.svg", "<svg>"}};
}

class BundleTest : public testing::Test {
 protected:
  void SetUp() override { write_mini_run(run_); }
  Written close(const ReportRenderer& drawings = nullptr) const {
    return write_bundle(run_, render_mini_run, drawings);
  }
  std::vector<std::string> in_ledger() const {
    std::vector<std::string> paths;
    for (const LedgerEntry& entry : read_ledger(read_bytes(run_ / "ledger.jsonl")).entries)
      paths.push_back(entry.path);
    return paths;
  }
  /// Why the run cannot be closed; "closed" when it can.
  std::string refusal() const {
    try {
      close();
    } catch (const EvidenceError& error) {
      return error.what();
    }
    return "closed";
  }
  TempDir dir_;
  fs::path run_ = dir_ / "run";
};

TEST_F(BundleTest, TheLedgerCoversEveryOtherFileAndItsHeadsAreReturned) {
  const Written written = close(draw);
  const auto paths = in_ledger();
  const RunFolder closed(run_);
  for (const std::string& path : closed.paths()) {
    if (path == "ledger.jsonl") continue;
    EXPECT_THAT(paths, Contains(path));
  }
  EXPECT_EQ(paths.size(), closed.paths().size() - 1);
  EXPECT_EQ(paths.back(), "results.json");
  const Ledger sealed = read_ledger(read_bytes(run_ / "ledger.jsonl"));
  EXPECT_EQ(written.head, sealed.head);
  EXPECT_EQ(written.evidence_head, sealed.evidence_head);
  EXPECT_NE(written.head, written.evidence_head);
  EXPECT_EQ(written.results.verdict.word, "GO");
  EXPECT_EQ(read_bytes(run_ / "report.html"), "GO");
}

TEST_F(BundleTest, AgainGivesTheSameBytes) {
  const Written first = close();
  const std::string ledger = read_bytes(run_ / "ledger.jsonl");
  EXPECT_EQ(close().head, first.head);
  EXPECT_EQ(read_bytes(run_ / "ledger.jsonl"), ledger);
}

/// The next write takes the temporary name over, so that a ledger would name a file that is gone.
TEST_F(BundleTest, WhatAKilledProcessWasWritingIsInNoLedger) {
  const Written whole = close();
  fs::remove(run_ / "ledger.jsonl");
  for (const char* part : {"ledger.jsonl.part", "results.json.part", "comment.md.part"})
    write_bytes(run_ / part, "cut o");
  EXPECT_EQ(close().head, whole.head);
  EXPECT_TRUE(verify(run_, render_mini_run).ok());
  write_bytes(run_ / "phases/speed/shard.part", "of a worker");
  close();
  EXPECT_THAT(in_ledger(), Contains("phases/speed/shard.part")) << "evidence stays";
}

TEST_F(BundleTest, DrawingsOfBeforeAreRemoved) {
  const Written plain = close();
  const Written drawn = close(draw);
  EXPECT_NE(drawn.head, plain.head);
  EXPECT_EQ(drawn.evidence_head, plain.evidence_head);
  EXPECT_EQ(close().head, plain.head);
  EXPECT_FALSE(fs::exists(run_ / "plots"));
  EXPECT_FALSE(fs::exists(run_ / "report.html"));
}

TEST_F(BundleTest, WhatALedgerCannotCoverIsRefusedByName) {
  fs::create_symlink("/etc/hostname", run_ / "phases/speed/link");
  EXPECT_THAT(refusal(), HasSubstr("phases/speed/link"));
  fs::remove(run_ / "phases/speed/link");
  ASSERT_EQ(::mkfifo((run_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("pipe"));
  fs::remove(run_ / "pipe");
  write_bytes(run_ / "bad\xff", "");
  EXPECT_THAT(refusal(), HasSubstr("not UTF-8"));
  EXPECT_FALSE(fs::exists(run_ / "results.json")) << "nothing is written before";
  fs::remove(run_ / "bad\xff");
  EXPECT_EQ(refusal(), "closed");
}

/// A phase that is damaged is a verdict; a run that is damaged as a whole is an error.
TEST_F(BundleTest, ADamagedPhaseIsReturnedAndTurnsTheVerdict) {
  fs::remove(run_ / "phases/speed/g02.jsonl");
  const Written written = close();
  ASSERT_EQ(written.problems.size(), 1u);
  EXPECT_EQ(written.problems[0].file(), "phases/speed/g02.jsonl");
  EXPECT_EQ(written.results.verdict.exit, 6);
  EXPECT_THAT(in_ledger(), Not(Contains("phases/speed/g02.jsonl")));
  write_bytes(run_ / "run.json", "{");
  EXPECT_THAT(refusal(), HasSubstr("run.json"));
}

}  // namespace
}  // namespace harness
