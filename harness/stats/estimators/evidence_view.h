#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// The raw evidence of one phase as the estimators see it: parsed lines, grouped by process. Filled
/// by harness/evidence from GROUP.jsonl files; independent of the protocol they were written in.
namespace harness {

struct CheckLine {
  std::string case_id;
  std::string id;  ///< e.g. "select.ties"; estimators count checks by id prefix
  bool ok = false;
  std::string code;  ///< failure code, e.g. ORACLE_MISMATCH; empty when ok
  std::string detail;
};

struct SampleLine {
  std::string case_id;
  std::string series;  ///< an arm ("v1", "SOURCE.v1"), its repeat ("v1.aa"), or a series
  double value = 0;    ///< in `unit`
  std::string unit;
  int64_t round = 0;
  int64_t order = 0;                   ///< position within the round
  std::optional<double> clock_mhz;     ///< device clock during the sample
  std::string throttle = {};           ///< "none", what held the clock down, or empty: not known
  std::optional<double> ran_pct = {};  ///< share of the time in which the thread had a core
  std::string null_reason = {};        ///< why there is no value; empty when there is
};

struct MetricLine {
  std::string case_id;
  std::string name;             ///< without the phase
  std::optional<double> value;  ///< a bool is 1 or 0
  std::string unit;
  std::string reason;  ///< why value is null
};

struct CaseLine {
  std::string id;
  bool ok = false;
  std::string reason;  ///< why it failed; empty when ok
};

/// One process. Lines stand in the order of the file.
struct GroupEvidence {
  std::string id;        ///< "g01"
  std::string file;      ///< raw evidence file, relative to the run folder
  std::string unusable;  ///< why none of its lines count (no `done`, ...); empty when they do
  std::vector<CaseLine> cases;
  std::vector<CheckLine> checks;
  std::vector<SampleLine> samples;
  std::vector<MetricLine> metrics;
};

struct EvidenceView {
  std::string phase;           ///< phase id of the runbook
  std::string device = "cpu";  ///< cpu | cuda: sets the margin of A/B verdicts
  uint64_t seed = 0;           ///< seed of the run; resampling is seeded with it
  int64_t groups_planned = 0;  ///< processes the plan holds
  int64_t looks = 1;           ///< planned looks at the growing evidence; they share the error
  std::string
      missing;  ///< why there is no evidence at all (phase DEFERRED, NOT_RUN); empty when there is
  std::vector<GroupEvidence> groups;
};

}  // namespace harness
