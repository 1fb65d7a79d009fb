#include "harness/cli/rendering/rendering.h"

#include <gmock/gmock.h>

#include "harness/cli/testing.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

using testing::ElementsAre;

std::vector<std::string> files_of(const std::vector<std::string>& formats) {
  const TempDir dir;
  write_mini_run(dir.path());
  std::vector<std::string> names;
  for (const auto& [name, text] : render_reports(derive(dir.path()), formats)) {
    EXPECT_NE(text, "") << name;
    names.push_back(name);
  }
  return names;
}

TEST(Rendering, FormatsChooseTheFiles) {
  EXPECT_THAT(files_of({}), ElementsAre("comment.md", "junit.xml", "report.md", "summary.md"));
  EXPECT_THAT(files_of({"md"}), ElementsAre("comment.md", "report.md", "summary.md"));
  EXPECT_THAT(files_of({"junit", "json"}), ElementsAre("junit.xml"));
  EXPECT_THAT(files_of({"json"}), ElementsAre());
}

}  // namespace
}  // namespace harness::cli
