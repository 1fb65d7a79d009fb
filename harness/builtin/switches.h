#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace harness {

/// The switches of the programs under test. Their registry is inside them: nsa-worker says it in
/// its first line.
struct SwitchNames {
  std::vector<std::string> known;
  std::string problem;  ///< why the worker does not say them; empty when it does
};
SwitchNames ask_switch_names(const std::filesystem::path& bin_dir);

/// Why the worker refuses the NSA_* variables of this process's environment, in its own words: an
/// unknown name with the nearest one, a value or a combination that cannot be. Empty when it takes
/// them, and when there are none: then it is not asked.
std::string environment_refusal(const std::filesystem::path& bin_dir);

/// One NSA_* variable of this process's environment.
struct EnvironmentSwitch {
  std::string name;
  std::string problem;  ///< empty for a known switch, else the nearest name and the remedy
};

/// Every NSA_* variable of this process's environment against `known`, by name.
std::vector<EnvironmentSwitch> check_environment_switches(const std::vector<std::string>& known);

}  // namespace harness
