#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace harness {

/// The switches of the programs under test. Their registry is inside them: nsa-worker reports it in
/// its first line.
struct SwitchNames {
  std::vector<std::string> known;
  std::string problem;  ///< why the worker does not report them; empty when it does
};
SwitchNames ask_switch_names(const std::filesystem::path& bin_dir);

using SwitchValues = std::map<std::string, std::string>;  ///< name -> value

/// Every switch as nsa-worker sees it in an environment that holds `environment` and no other NSA_*
/// variable. Throws Error when the worker does not report them.
SwitchValues ask_switches(const std::filesystem::path& bin_dir, const SwitchValues& environment);

/// What a worker of a phase with these `declared` switches gets: the NSA_* variables of this
/// process, and the declared ones over them.
SwitchValues switches_here(const SwitchValues& declared);

/// Why the worker refuses the NSA_* variables of this process's environment, in its own words: an
/// unknown name with the nearest one, a value or a combination that cannot be. Empty when it takes
/// them, and when there are none: then it is not asked.
std::string environment_refusal(const std::filesystem::path& bin_dir);

/// Why a run of these `kinds` of nsa-worker, and of `blind` programs, which look at no switch,
/// would do nothing with a switch of this process's environment: those that none of the kinds looks
/// at. Empty when there are none, or no NSA_* variable at all: then the worker is not asked.
std::string ignored_by_all(const std::filesystem::path& bin_dir,
                           const std::vector<std::string>& kinds,
                           const std::vector<std::string>& blind = {});

/// One NSA_* variable of this process's environment.
struct EnvironmentSwitch {
  std::string name;
  std::string problem;  ///< empty for a known switch, else the nearest name and the remedy
};

/// Every NSA_* variable of this process's environment against `known`, by name.
std::vector<EnvironmentSwitch> check_environment_switches(const std::vector<std::string>& known);

}  // namespace harness
