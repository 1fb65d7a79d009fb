#include "harness/preflight/switches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "harness/phases/worker_call.h"
#include "harness/provenance/capture.h"
#include "harness/provenance/machine.h"
#include "harness/runbook/checks/names.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"

namespace harness {

namespace {

/// Seconds. The first start reads LibTorch from disk: over 30 s were seen on a slow one.
constexpr double kPatience = 300;

/// A case that takes no time; only the line that the worker writes before it is read.
WorkerCall question(const std::filesystem::path& bin_dir) {
  WorkerCall call{.program = bin_dir / "nsa-worker", .kind = "gate_health"};
  call.args = {{"layers", 1}, {"dk", 16}, {"tokens", 16}};
  call.timeout_s = kPatience;
  return call;
}

}  // namespace

SwitchValues ask_switches(const std::filesystem::path& bin_dir, const SwitchValues& environment) {
  WorkerCall call = question(bin_dir);
  call.env.assign(environment.begin(), environment.end());
  const WorkerAnswer answer = call_worker(call);
  if (!answer.problem.empty())
    throw Error("the worker does not report its switches: " + answer.problem);
  SwitchValues values;
  for (const auto& one :
       std::get<base::protocol::Hello>(answer.transcript.lines.front().message).switches)
    values[one.name] = one.value;
  return values;
}

SwitchValues switches_here(const SwitchValues& declared) {
  SwitchValues values = declared;
  const nlohmann::json effective = environment_variables()["effective"];
  for (const auto& [name, value] : effective.items())
    values.emplace(name, value.get<std::string>());
  return values;
}

SwitchNames ask_switch_names(const std::filesystem::path& bin_dir) {
  const WorkerAnswer answer = call_worker(question(bin_dir));
  if (!answer.problem.empty())
    return {{}, "the worker does not report its switches: " + answer.problem};
  SwitchNames names;
  for (const auto& value :
       std::get<base::protocol::Hello>(answer.transcript.lines.front().message).switches)
    names.known.push_back(value.name);
  return names;
}

std::string environment_refusal(const std::filesystem::path& bin_dir) {
  constexpr size_t kLongest = 500;
  const nlohmann::json effective = environment_variables()["effective"];
  if (effective.empty()) return "";
  WorkerCall call = question(bin_dir);
  for (const auto& [name, value] : effective.items())
    call.env.emplace_back(name, value.get<std::string>());
  const WorkerAnswer answer = call_worker(call);
  if (answer.problem.empty()) return "";
  const size_t at = answer.log.find("CONFIG_ERROR");
  if (at == std::string::npos) return "the worker was not asked: " + answer.problem;
  return printable(std::string_view(answer.log).substr(at, answer.log.find('\n', at) - at),
                   kLongest);
}

std::string ignored_by_all(const std::filesystem::path& bin_dir,
                           const std::vector<std::string>& kinds,
                           const std::vector<std::string>& blind) {
  if (kinds.empty() && blind.empty()) return "";
  if (environment_variables()["effective"].empty()) return "";
  CaptureOptions patient;
  patient.timeout_s = kPatience;
  patient.whole_tree = true;
  const Captured answer = capture(
      {(bin_dir / "nsa-worker").string(), "--ignored-by", fmt::format("{}", fmt::join(kinds, ","))},
      patient);
  if (!answer.ok()) return "";  // its phases report why it does not answer
  std::istringstream lines(answer.out);
  std::string ignored;
  for (std::string line; std::getline(lines, line);)
    ignored += (ignored.empty() ? "" : ", ") + printable(line, 200) + " (environment)";
  if (ignored.empty()) return "";
  std::vector<std::string> all = kinds;
  all.insert(all.end(), blind.begin(), blind.end());
  return fmt::format(
      "{} is ignored by every phase of this run ({}); unset it or choose a runbook that it decides "
      "something in",
      ignored, fmt::join(all, ","));
}

std::vector<EnvironmentSwitch> check_environment_switches(const std::vector<std::string>& known) {
  std::vector<EnvironmentSwitch> found;
  const nlohmann::json effective = environment_variables()["effective"];
  for (const auto& [name, value] : effective.items())
    found.push_back({name, contains(known, name)
                               ? ""
                               : "no such switch, or its feature does not exist; unset it" +
                                     did_you_mean(name, known)});
  return found;
}

}  // namespace harness
