#include "suites/bench/targets/case_row.h"

#include <c10/util/Exception.h>

#include <stdexcept>

#include "suites/instrument/facts.h"

namespace suites {

using nlohmann::json;

json bench_report(at::Device device, uint64_t seed) {
  return {{"schema", "nsa-bench/2"},
          {"device", device_name(device)},
          {"libraries", library_versions(device)},
          {"seed", seed},
          {"cases", json::array()}};
}

void require_cases(const json& report, const std::string& filter) {
  if (report.at("cases").empty())
    throw std::invalid_argument("--case " + filter + ": no case has that in its name");
}

json case_row(const std::string& id, const CaseConfig& config) {
  return {{"id", id},
          {"config", to_string(config)},
          {"dtype", "bf16"},
          {"problems", json::array()},
          {"checks_run", 0}};
}

json run_case(const std::string& id, const CaseConfig& config, at::Device device,
              const std::function<void(json& row)>& run) {
  json row = case_row(id, config);
  const auto contained = [&row](const std::function<void()>& work) {
    try {
      work();
    } catch (const c10::Error& error) {
      row["problems"].push_back(error.what_without_backtrace());
    } catch (const std::exception& error) {
      row["problems"].push_back(error.what());
    }
  };
  contained([&] { run(row); });
  contained([&] { release_memory(device); });
  return row;
}

void note_checks(const Checks& checks, json& row) {
  if (checks.empty()) row["problems"].push_back("no check ran");
  for (const Check& check : checks) {
    row["checks_run"] = row.value("checks_run", 0) + 1;
    if (!check.ok) row["problems"].push_back(check.id + ": " + check.detail);
  }
}

void note_selection(const SelectionReport& selection, json& row) {
  row["selection"] = {{"rows", selection.rows},
                      {"exchanged_rows", selection.differing_rows},
                      {"largest_score_difference", selection.worst_gap}};
}

void note_paths(const std::vector<nsa::RanBackend>& ran, json& row, const std::string& kernels) {
  for (const nsa::RanBackend& one : ran) {
    const bool branch = one.stage.find("attn") != std::string::npos || one.stage == "select";
    if (!branch || one.count == 0) continue;
    row["ran"][one.stage] = one.backend + (one.detail.empty() ? "" : " (" + one.detail + ")");
    if (one.backend != kernels)
      row["problems"].push_back("not by a kernel: " + one.stage + " " + one.backend + ": " +
                                one.reason);
  }
  if (!row.contains("ran")) row["problems"].push_back("no branch is on record");
}

void note_figures(const TargetFigures& known, json& pass) {
  const double ms = pass.at("hot").at("median_ms");
  if (known.floor) pass["floor_ms"] = *known.floor, pass["of_floor_pct"] = *known.floor / ms * 100;
  if (known.target) pass["target_ms"] = *known.target, pass["met"] = ms <= *known.target;
  if (known.stretch) pass["stretch_ms"] = *known.stretch;
  if (known.peer) pass["peer_ms"] = *known.peer, pass["peer_ratio"] = *known.peer / ms;
}

}  // namespace suites
