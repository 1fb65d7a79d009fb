// A run folder with its evidence packed is the same run to every reader.
#include "harness/evidence/storage/packed_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/storage/testing.h"
#include "harness/evidence/verify.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

class PackedRun : public testing::Test {
 protected:
  PackedRun() {
    fs::create_directories(run_);
    write_mini_run(run_);
    head_ = write_bundle(run_, render_mini_run).head;
  }
  std::vector<std::string> on_disk() const {
    std::vector<std::string> names;
    for (const auto& item : fs::directory_iterator(run_))
      names.push_back(item.path().filename().string());
    return names;
  }

  TempDir dir_;
  fs::path run_ = dir_ / "run";
  std::string head_;
};

TEST_F(PackedRun, IsVerifiedAsItWasAndUnpackedToTheSameFiles) {
  std::map<std::string, std::string> before;
  for (const RunFolder whole(run_); const std::string& path : whole.paths())
    before[path] = whole.read(path);
  pack_run(run_);
  EXPECT_TRUE(is_packed(run_));
  EXPECT_THAT(on_disk(),
              IsSupersetOf({"report.md", "results.json", "ledger.jsonl", "evidence.tar.xz"}));
  EXPECT_THAT(on_disk(), Not(Contains("run.json")));
  const Verification packed = verify(run_, render_mini_run, head_);
  EXPECT_TRUE(packed.ok()) << verification_text(packed);
  EXPECT_EQ(packed.head, head_);
  unpack_run(run_);
  EXPECT_FALSE(is_packed(run_));
  const RunFolder after(run_);
  EXPECT_EQ(after.paths().size(), before.size());
  for (const auto& [path, bytes] : before) EXPECT_EQ(read_bytes(run_ / path), bytes) << path;
}

TEST_F(PackedRun, RenderingAgainLeavesTheArchiveAlone) {
  pack_run(run_);
  const std::string archive = read_bytes(run_ / kEvidenceArchive);
  unpack_run(run_);
  write_bytes(run_ / "report.md", "rendered by another version");
  pack_run(run_);
  EXPECT_EQ(read_bytes(run_ / kEvidenceArchive), archive);
}

TEST_F(PackedRun, DamageOfTheArchiveAndOfTheReportIsNamed) {
  pack_run(run_);
  const std::string report = read_bytes(run_ / "report.md");
  write_bytes(run_ / "report.md", report + "x");
  EXPECT_THAT(verification_text(verify(run_, render_mini_run)), HasSubstr("report.md"));
  write_bytes(run_ / "report.md", report);
  std::string archive = read_bytes(run_ / kEvidenceArchive);
  write_bytes(run_ / kEvidenceArchive, archive.substr(0, archive.size() / 2));
  EXPECT_THAT(verification_text(verify(run_, render_mini_run)),
              HasSubstr("evidence.tar.xz: the archive is cut off"));
}

/// What stands beside the archive is what counts: a changed copy is found, not passed over.
TEST_F(PackedRun, AFileBesideItsPackedCopyIsTheOneThatIsRead) {
  pack_run(run_);
  write_bytes(run_ / "run.json", "{}");
  EXPECT_THAT(verification_text(verify(run_, render_mini_run)), HasSubstr("run.json"));
}

TEST_F(PackedRun, IsNotTakenForAnInterruptedOne) {
  pack_run(run_);
  EXPECT_THAT(error_of([&] { require_unfinished(run_); }), HasSubstr("the run has ended"));
}

}  // namespace
}  // namespace harness
