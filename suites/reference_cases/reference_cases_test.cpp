// The oracle against every case of the folder (cases_folder.h).
#include <gtest/gtest.h>

#include <cstdio>

#include "suites/reference_cases/cases_folder.h"
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

}  // namespace
}  // namespace suites

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return suites::run_case_tests("ReferenceCases", [](const std::filesystem::path& path) {
    return new suites::CaseFile(path);
  });
}
