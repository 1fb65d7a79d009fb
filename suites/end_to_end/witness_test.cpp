// Every criterion of the shipped runbooks that a small run on a CPU can make fail: the cause is
// injected in the real programs, and the criterion must FAIL.
#include <gmock/gmock.h>

#include "base/testing/paths.h"
#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The programs of this build, the trainer being the one that takes faults.
std::string programs() {
  const fs::path bin = fs::path(program()).parent_path(), dir = fresh_dir("witness_bin");
  fs::create_directories(dir);
  fs::copy(program(), dir / "nsa-validate");
  for (const auto& [name, from] : {std::pair{"nsa-worker", "nsa-worker"},
                                   {"nsa-tests", "nsa-tests"},
                                   {"nsa-train", "nsa-train-faulty"}})
    fs::create_symlink(fs::absolute(bin / from), dir / name);
  return (dir / "nsa-validate").string();
}

TEST(Witnesses, EveryCriterionFailsInTheRunOfItsCause) {
  const fs::path out = fresh_dir("witnesses");
  const std::string book = configs_with_faults() + "/runbooks/witness_cpu.json";
  const std::string validate = programs();
  const std::string shipped = base::source_dir() + "/configs";
  const Outcome written = run({validate, "witnesses", "--configs", shipped, "--out", book});
  ASSERT_EQ(written.exit_code, 0) << written.output;
  const Outcome done = run({validate, "--configs", configs_with_faults(), "--runbook",
                            "witness_cpu", "--out", out.string()});
  ASSERT_TRUE(fs::exists(out / "results.json")) << done.output;
  const json found = results(out);
  int64_t failed = 0;
  for (const json& criterion : found["criteria"]) {
    EXPECT_EQ(criterion["verdict"], "FAIL")
        << criterion["metric"] << " " << criterion["op"] << " " << criterion["threshold"] << ": "
        << criterion["reason"];
    failed += criterion["verdict"] == "FAIL";
  }
  EXPECT_GE(failed, 90);
  EXPECT_EQ(run({validate, "verify", out.string()}).exit_code, 0) << "bad news is good evidence";
}

}  // namespace
}  // namespace suites::end_to_end
