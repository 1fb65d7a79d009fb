#include "harness/evidence/revision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/derive/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/verify.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

/// A finished mini run that supersedes the one in `before`.
fs::path second_revision(const TempDir& dir, const fs::path& before, const MiniRun& injected) {
  const fs::path out = dir / "second";
  write_mini_run(out, injected);
  json info = json::parse(read_bytes(out / "run.json"));
  RunInfo next;
  std::map<std::string, std::string> attached;
  follow_revision(RunFolder(before), "mini", next, attached);
  info["revision"] = next.revision;
  info["supersedes"] = next.supersedes;
  write_bytes(out / "run.json", pretty_dump(info));
  fs::create_directories(out / "superseded");
  for (const auto& [path, text] : attached) write_bytes(out / path, text);
  write_bundle(out, render_mini_run);
  return out;
}

json revisions_of(const Results& results) {
  for (const json& table : results.tables)
    if (table["id"] == "revisions") return table;
  return {};
}

std::string change_of(const json& table, const std::string& criterion) {
  for (const json& row : table["rows"])
    if (row[0] == criterion) return row.back();
  return "no such row";
}

TEST(Revision, SecondOneComparesCriterionByCriterion) {
  TempDir dir;
  const Written first = finish_mini_run(dir / "first", {.mismatch = true});
  const Results second =
      derive(second_revision(dir, dir / "first", {.criterion_on_baseline = true}));
  EXPECT_EQ(second.run.revision, "2");
  EXPECT_EQ(second.run.supersedes, first.head);
  const json table = revisions_of(second);
  EXPECT_THAT(table["title"].get<std::string>(), HasSubstr("revision 1"));
  EXPECT_THAT(table["title"].get<std::string>(), HasSubstr("NO-GO"));
  EXPECT_EQ(change_of(table, "C-CONFORM"), "better");
  EXPECT_EQ(change_of(table, "C-SPEED"), "same");
  EXPECT_EQ(change_of(table, "C-SPEED-BASE"), "new");
  EXPECT_TRUE(verify(dir / "second", render_mini_run).ok());
}

TEST(Revision, WorseAndGoneAreReported) {
  TempDir dir;
  finish_mini_run(dir / "first", {.criterion_on_baseline = true});
  const json table = revisions_of(derive(second_revision(dir, dir / "first", {.speedup = 1.2})));
  EXPECT_EQ(change_of(table, "C-SPEED"), "worse");
  EXPECT_EQ(change_of(table, "C-SPEED-BASE"), "gone");
  EXPECT_NE(table["rows"][0].back(), "same") << "what changed comes first";
  EXPECT_NE(table["rows"][1].back(), "same");
  EXPECT_THAT(
      table["title"].get<std::string>(),
      HasSubstr("): 1 gone, " + std::to_string(table["rows"].size() - 2) + " same, 1 worse"));
}

TEST(Revision, FirstOneHasNoTable) {
  TempDir dir;
  finish_mini_run(dir / "first");
  EXPECT_TRUE(revisions_of(derive(dir / "first")).is_null());
}

TEST(Revision, DamagedOrForeignRunsAreRefused) {
  TempDir dir;
  finish_mini_run(dir / "first");
  RunInfo info;
  std::map<std::string, std::string> attached;
  EXPECT_THROW(follow_revision(RunFolder(dir / "first"), "other", info, attached), ConfigError);
  std::string samples = read_bytes(dir / "first/phases/speed/g01.jsonl");
  samples[samples.size() / 2] ^= 1;
  write_bytes(dir / "first/phases/speed/g01.jsonl", samples);
  try {
    follow_revision(RunFolder(dir / "first"), "mini", info, attached);
    FAIL() << "a damaged run was superseded";
  } catch (const EvidenceError& e) {
    EXPECT_THAT(e.what(), HasSubstr("phases/speed/g01.jsonl"));
  }
  EXPECT_TRUE(attached.empty());
}

TEST(Revision, ExchangedPredecessorIsAnEvidenceProblem) {
  TempDir dir;
  finish_mini_run(dir / "first");
  const fs::path second = second_revision(dir, dir / "first", {});
  std::string before = read_bytes(second / "superseded/results.json");
  const size_t at = before.find("\"GO\"");
  ASSERT_NE(at, std::string::npos);
  write_bytes(second / "superseded/results.json", before.replace(at, 4, "\"NO\""));
  const Derived derived = derive_all(RunFolder(second));
  ASSERT_EQ(derived.problems.size(), 1u);
  EXPECT_EQ(derived.problems[0].file(), "superseded/results.json");
  EXPECT_EQ(derived.results.verdict.exit, 6);
}

}  // namespace
}  // namespace harness
