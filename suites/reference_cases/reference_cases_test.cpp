// One test for each *.safetensors file in the folder NSA_CASES_DIR, or ../shared/cases beside the
// source tree. Without the folder nothing ran, and the program says so and exits with status 77.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "suites/reference_cases/judge.h"

namespace suites {
namespace {

class CaseFile : public ::testing::Test {
 public:
  explicit CaseFile(std::filesystem::path path) : path_(std::move(path)) {}
  void TestBody() override {
    const ReferenceCase reference_case = load_case(path_);
    const Judgement judgement = judge(reference_case);
    EXPECT_FALSE(judgement.compared.empty()) << "nothing was compared";
    for (const std::string& failure : judgement.failures)
      ADD_FAILURE() << path_.string() << ": " << failure;
    RecordProperty("comparisons", static_cast<int>(judgement.compared.size()));
    std::printf("  %s: %zu comparisons\n", reference_case.kind.c_str(), judgement.compared.size());
  }

 private:
  std::filesystem::path path_;
};

std::filesystem::path cases_folder() {
  if (const char* folder = std::getenv("NSA_CASES_DIR")) return folder;
  return std::filesystem::path(NSA_SOURCE_DIR) / "../shared/cases";
}

std::vector<std::filesystem::path> case_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace
}  // namespace suites

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::filesystem::path folder = suites::cases_folder();
  if (!std::filesystem::is_directory(folder)) {
    std::printf("%s: cases folder absent: not run\n", folder.c_str());
    return 77;
  }
  const auto files = suites::case_files(folder);
  if (files.empty()) {
    std::printf("%s: no *.safetensors in the cases folder\n", folder.c_str());
    return 1;
  }
  for (const auto& path : files)
    ::testing::RegisterTest("ReferenceCases", path.stem().c_str(), nullptr, nullptr,
                            path.filename().c_str(), 0,
                            [path]() -> ::testing::Test* { return new suites::CaseFile(path); });
  return RUN_ALL_TESTS();
}
