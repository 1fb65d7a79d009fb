#include "harness/runbook/plan/baseline.h"

#include <cctype>
#include <cmath>

#include "harness/runbook/checks/names.h"
#include "harness/runbook/files.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/read.h"

namespace harness {
namespace {

/// Why one figure may not be used; empty when it may.
std::string metric_problem(const BaselineMetric& metric) {
  const std::string what = "metric " + in_quotes(metric.metric) + " ";
  if (const auto problem = metric_name_problem(metric.metric, metric.unit, /*with_phase=*/true);
      !problem.empty())
    return what + problem;
  const bool finite =
      std::isfinite(metric.value) && std::isfinite(metric.lo) && std::isfinite(metric.hi);
  if (!finite || !(metric.value > 0))
    return what + "must have a value above 0, got " + std::to_string(metric.value);
  if (!(metric.lo <= metric.value && metric.value <= metric.hi))
    return what + "has a value outside its interval";
  if (!(metric.level >= 0 && metric.level < 1))
    return what + "must have a level in [0, 1), got " + std::to_string(metric.level);
  if (metric.n < 1) return what + "has no unit of analysis behind it (n < 1)";
  return "";
}

std::string file_problem(const BaselineFile& file, const std::string& runbook,
                         const HardwareKey& hardware) {
  if (file.schema != "nsa-baseline/1")
    return "schema must be 'nsa-baseline/1', got " + in_quotes(file.schema);
  if (file.runbook != runbook)
    return "is of runbook " + in_quotes(file.runbook) + ", not of '" + runbook + "'";
  if (!(file.hardware == hardware))
    return "is of other hardware: " + hw_key(file.hardware) + ", this is " + hw_key(hardware);
  if (file.build_id.empty() || file.reason.empty())
    return "lacks the build it was measured on or the reason of its promotion";
  if (file.metrics.empty()) return "holds no metric";
  return "";
}

}  // namespace

std::string hw_key(const HardwareKey& key) {
  std::string name;
  for (const char c : key.sku) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    name += plain ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
  }
  return name + "-" + std::to_string(key.power_limit_w) + "w-" + std::to_string(key.driver_major) +
         "-" + key.libtorch;
}

std::filesystem::path baseline_path(const std::filesystem::path& configs_dir,
                                    const std::string& runbook, const HardwareKey& key) {
  return configs_dir / "baselines" / runbook / (hw_key(key) + ".json");
}

BaselineSet parse_baseline(const std::string& text, const std::string& name,
                           const std::string& runbook, const HardwareKey& hardware) {
  BaselineSet set{.file = name, .problem = "", .values = {}};
  const auto invalid = [&](const std::string& why) {
    return BaselineSet{name, "BASELINE_INVALID: " + why, {}};
  };
  try {
    const auto baseline = read_json<BaselineFile>(text, name);
    if (const auto problem = file_problem(baseline, runbook, hardware); !problem.empty())
      return invalid(name + " " + problem);
    for (const BaselineMetric& metric : baseline.metrics) {
      if (const auto problem = metric_problem(metric); !problem.empty())
        return invalid(name + ": " + problem);
      if (!set.values.emplace(metric.metric, metric.value).second)
        return invalid(name + ": metric " + in_quotes(metric.metric) + " is given twice");
      set.units[metric.metric] = metric.unit;
      set.levels[metric.metric] = metric.level;
    }
  } catch (const ConfigError& e) {
    return invalid(e.what());
  }
  return set;
}

BaselineSet load_baseline(const std::filesystem::path& file, const std::string& runbook,
                          const HardwareKey& hardware) {
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    return {
        file.string(),
        "BASELINE_INVALID: " + file.string() + " does not exist; promote a run on this hardware",
        {}};
  try {
    return parse_baseline(read_text(file), file.string(), runbook, hardware);
  } catch (const ConfigError& e) {
    return {file.string(), std::string("BASELINE_INVALID: ") + e.what(), {}};
  }
}

}  // namespace harness
