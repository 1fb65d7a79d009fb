#include "harness/preflight/doctor.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"

namespace harness::cli {
namespace {

const char* word(DoctorRow::State state) {
  switch (state) {
    case DoctorRow::State::kOk:
      return "ok";
    case DoctorRow::State::kWarning:
      return "warning";
    case DoctorRow::State::kProblem:
      return "PROBLEM";
  }
  return "?";
}

}  // namespace

int doctor_command(const Options& options) {
  const auto rows =
      doctor(std::filesystem::current_path() / "runs", program_dir(), configs_dir(options.configs));
  nlohmann::json all = nlohmann::json::array();
  for (const DoctorRow& row : rows) {
    if (options.json) {
      all.push_back({{"state", word(row.state)},
                     {"what", row.what},
                     {"found", row.found},
                     {"remedy", row.remedy}});
    } else {
      fmt::print("{:<8} {:<18} {}\n", word(row.state), row.what, row.found);
      if (!row.remedy.empty()) fmt::print("{:27} -> {}\n", "", row.remedy);
    }
  }
  if (options.json) std::printf("%s\n", all.dump(2).c_str());
  return doctor_exit(rows);
}

}  // namespace harness::cli
