#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/paths.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/evidence/verify.h"

/// The committed runs are proved by this very program. After a change of what is derived or
/// rendered: `nsa-validate report reports/samples/NAME` for each, which keeps the evidence head.
namespace harness::cli {
namespace {

TEST(Samples, VerifyWithThisProgram) {
  size_t samples = 0;
  for (const auto& sample :
       std::filesystem::directory_iterator(base::source_dir() + "/reports/samples")) {
    if (!std::filesystem::exists(sample.path() / "results.json")) continue;
    const Verification found =
        verify(sample.path(), [](const Results& results) { return render_reports(results); });
    EXPECT_TRUE(found.ok()) << sample.path() << "\n" << verification_text(found);
    ++samples;
  }
  EXPECT_GE(samples, 2U);
}

/// Every clone carries them.
TEST(Samples, AreSmallerThan20MB) {
  uintmax_t bytes = 0;
  for (const auto& item :
       std::filesystem::recursive_directory_iterator(base::source_dir() + "/reports/samples"))
    if (item.is_regular_file()) bytes += item.file_size();
  EXPECT_GT(bytes, 0U);
  EXPECT_LT(bytes, 20'000'000U) << "replace a run instead of adding one";
}

}  // namespace
}  // namespace harness::cli
