#include "harness/evidence/tables/catch_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/derive/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Results of the mini run as if it had been a self test.
std::string matrix_of_mini_run() {
  const TempDir dir;
  write_mini_run(dir.path());
  Results results = derive(dir.path());
  results.tables.push_back({{"id", "selftest.catch_matrix"},
                            {"title", "t"},
                            {"phase", "selftest"},
                            {"columns", {"fault", "seen"}},
                            {"rows", json::array({json::array({"P01", "caught"})})}});
  return catch_matrix_file(results);
}

TEST(CatchMatrix, ARunOfTheSameBuildShowsIt) {
  const TempDir dir;
  write_mini_run(dir.path());
  write_bytes(dir / "catch_matrix.json", matrix_of_mini_run());
  const Derived derived = derive_all(RunFolder(dir.path()));
  EXPECT_TRUE(derived.problems.empty());
  const auto found = std::find_if(derived.results.tables.begin(), derived.results.tables.end(),
                                  [](const json& t) { return t["id"] == "catch_matrix"; });
  ASSERT_NE(found, derived.results.tables.end());
  EXPECT_EQ((*found)["rows"][0][0], "P01");
}

TEST(CatchMatrix, OfAnotherBuildOrDamagedIsAProblem) {
  json other = json::parse(matrix_of_mini_run());
  other["build_id"] = "other";
  for (const std::string& text : {other.dump(), std::string("{}"), std::string("[1]")}) {
    const TempDir dir;
    write_mini_run(dir.path());
    write_bytes(dir / "catch_matrix.json", text);
    const Derived derived = derive_all(RunFolder(dir.path()));
    ASSERT_EQ(derived.problems.size(), 1u) << text;
    EXPECT_EQ(derived.problems[0].file(), "catch_matrix.json");
    EXPECT_EQ(derived.results.verdict.exit, 6);
  }
}

TEST(CatchMatrix, WithoutOneThereIsNoFileAndNoName) {
  const TempDir dir;
  write_mini_run(dir.path());
  EXPECT_EQ(catch_matrix_file(derive(dir.path())), "");
  EXPECT_EQ(catch_matrix_name(json::object()), "");
  EXPECT_EQ(catch_matrix_name({{"build", {{"build_id", "0123456789abcdef99"}}}}),
            "0123456789abcdef-unknown-0w-0-unknown.json");
}

}  // namespace
}  // namespace harness
