#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/schema/traits.h"

/// Reviewed baselines: configs/baselines/RUNBOOK/HW_KEY.json. A baseline that cannot be trusted is
/// never used: its problem stands where the values would, and no criterion passes on it.
namespace harness {

/// What a baseline holds for. Figures of other hardware are no baseline.
struct HardwareKey {
  std::string sku;            ///< name of the GPU, or of the CPU when there is none
  int64_t power_limit_w = 0;  ///< 0: none or unknown
  int64_t driver_major = 0;   ///< 0: no driver
  std::string libtorch;       ///< major.minor, e.g. "2.11"
  bool operator==(const HardwareKey&) const = default;
  template <class V>
  static void describe(V& v) {
    v({.name = "sku", .doc = "name of the GPU, or of the CPU", .required = true},
      &HardwareKey::sku);
    v({.name = "power_limit_w", .doc = "power limit in watts; 0: none", .required = true},
      &HardwareKey::power_limit_w);
    v({.name = "driver_major", .doc = "major version of the driver; 0: none", .required = true},
      &HardwareKey::driver_major);
    v({.name = "libtorch", .doc = "major.minor of LibTorch", .required = true},
      &HardwareKey::libtorch);
  }
};

struct BaselineMetric {
  std::string metric;  ///< full metric name
  double value = 0;
  double lo = 0, hi = 0;
  int64_t n = 0;
  double level = 0;
  std::string unit;
  template <class V>
  static void describe(V& v) {
    v({.name = "metric", .doc = "full metric name", .required = true}, &BaselineMetric::metric);
    v({.name = "value", .doc = "the figure", .required = true}, &BaselineMetric::value);
    v({.name = "lo", .doc = "lower bound of its interval", .required = true}, &BaselineMetric::lo);
    v({.name = "hi", .doc = "upper bound of its interval", .required = true}, &BaselineMetric::hi);
    v({.name = "n", .doc = "units of analysis behind it", .required = true}, &BaselineMetric::n);
    v({.name = "level", .doc = "confidence level of the interval; 0: an exact figure"},
      &BaselineMetric::level);
    v({.name = "unit", .doc = "must agree with the metric's suffix", .required = true},
      &BaselineMetric::unit);
  }
};

struct BaselineFile {
  std::string schema = "nsa-baseline/1";
  std::string runbook;
  HardwareKey hardware;
  std::string build_id;
  std::string reason;
  std::vector<BaselineMetric> metrics;
  template <class V>
  static void describe(V& v) {
    v({.name = "schema", .doc = "nsa-baseline/1", .required = true}, &BaselineFile::schema);
    v({.name = "runbook", .doc = "runbook that measured it", .required = true},
      &BaselineFile::runbook);
    v({.name = "hardware", .doc = "what it holds for", .required = true}, &BaselineFile::hardware);
    v({.name = "build_id", .doc = "build that was measured", .required = true},
      &BaselineFile::build_id);
    v({.name = "reason", .doc = "why it was promoted", .required = true}, &BaselineFile::reason);
    v({.name = "metrics", .doc = "figures", .required = true}, &BaselineFile::metrics);
  }
};

/// What judging needs: either values or a problem.
struct BaselineSet {
  std::string file;
  std::string problem;  ///< starts with BASELINE_INVALID; empty when the values may be used
  std::map<std::string, double> values;  ///< metric -> value; empty when there is a problem
  std::map<std::string, std::string> units = {};
  std::map<std::string, double> levels = {};  ///< of the intervals; 0: exact
};

/// "nvidia_h200-700w-580-2.11": file name of a key, without extension.
std::string hw_key(const HardwareKey& key);

/// configs/baselines/RUNBOOK/HW_KEY.json
std::filesystem::path baseline_path(const std::filesystem::path& configs_dir,
                                    const std::string& runbook, const HardwareKey& key);

/// Reads `file` for `runbook` on `hardware`. Never throws for what the file holds: missing,
/// unreadable or malformed, of another runbook or other hardware, without metrics, a metric twice,
/// a value that is not above 0 or outside its interval, a unit that disagrees with the name: each
/// is a problem and there are no values.
BaselineSet load_baseline(const std::filesystem::path& file, const std::string& runbook,
                          const HardwareKey& hardware);

/// The same of a text; `name` stands in the problem.
BaselineSet parse_baseline(const std::string& text, const std::string& name,
                           const std::string& runbook, const HardwareKey& hardware);

}  // namespace harness
