#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

class DoctorCommand : public testing::Test {
 protected:
  DoctorCommand() { options_.configs = shipped_configs(); }
  TempDir dir_;
  WorkingDir here_{dir_.path()};
  Options options_;
};

TEST_F(DoctorCommand, ReportsEveryRowAndARemedyForWhatIsNotOk) {
  options_.json = true;
  const Printed report = printed(doctor_command, options_);
  const auto rows = nlohmann::json::parse(report.out);
  ASSERT_GE(rows.size(), 5u);
  bool problem = false;
  std::set<std::string> names;
  for (const auto& row : rows) {
    names.insert(row["what"].get<std::string>());
    EXPECT_NE(row["found"].get<std::string>(), "") << row;
    problem = problem || row["state"] == "PROBLEM";
    if (row["state"] == "PROBLEM") {
      EXPECT_NE(row["remedy"].get<std::string>(), "") << row;
    }
  }
  EXPECT_FALSE(names.contains(""));
  EXPECT_TRUE(names.contains("disk space"));
  EXPECT_EQ(report.exit_code, problem ? 3 : 0);
}

TEST_F(DoctorCommand, TheTextHasTheSameRows) {
  options_.json = true;
  const auto rows = nlohmann::json::parse(printed(doctor_command, options_).out);
  options_.json = false;
  const Printed text = printed(doctor_command, options_);
  for (const auto& row : rows) EXPECT_THAT(text.out, HasSubstr(row["what"].get<std::string>()));
}

}  // namespace
}  // namespace harness::cli
