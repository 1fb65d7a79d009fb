#pragma once
#include <optional>
#include <string>
#include <vector>

#include "nsa/train/data/batch_loader.h"
#include "nsa/train/loop/step_record.h"
#include "nsa/train/train_options.h"

/// What a finished (or stopped) run shows: pure functions of its trace.
namespace nsa::train {

/// A figure; `value` is empty where there is none, with a `reason`.
struct Figure {
  std::string name, unit;
  std::optional<double> value;
  std::string reason;
};

/// A yes/no question about the run.
struct Check {
  std::string id, code, detail;
  bool ok = false;
  double error = 0, tolerance = 0;
};

struct Finding {
  std::string code, symptom, fact, cause, action;
};

/// The request that lets any backend run; the record names the one that did, and why.
inline constexpr const char* kAutoBackend = "auto";

/// A backend of a stage, summed over layers and steps.
struct PathRow {
  std::string stage, requested, ran, detail, reason;
  int64_t count = 0;
};

/// What is known of a run beside its trace.
struct RunFacts {
  int64_t vocab = 256;
  bool real_data = false;       ///< a named corpus was read and its hashes matched
  std::string substitute = {};  ///< used instead of the named corpus; empty: none
  double peak_mib = 0;
  std::vector<Figure> memory = {};  ///< predicted and measured (memory_report.h)
  std::vector<PathRow> paths;       ///< which backend every stage asked for and ran
  int64_t step_tokens = 0;  ///< of an optimizer step: batch x accum x seq_len x row_groups()
  int64_t ranks = 1;
  int64_t context_ranks = 1;  ///< that divide rows among them
  /// With rows of their own.
  int64_t row_groups() const { return ranks / context_ranks; }
  std::vector<int64_t> bucket_bytes = {};   ///< of gradients as they were sent, in order
  std::vector<double> rank_peaks_mib = {};  ///< of each rank's tensors; empty with one rank
  int64_t largest_parameter_bytes = 0;
  LoaderTelemetry loader = {};
  std::string kept_out = {};  ///< rows that losses without training were measured on; empty: none
  /// That of kept-out rows behind the last step of the trace, where nothing was trained; nat.
  std::optional<double> evaluated_loss = {};
  std::optional<double> evaluated_accuracy = {};  ///< share of its targets
  bool has_gates = true;                          ///< a dense model has none
  bool by_graph = false;                          ///< steps were launches of a CUDA graph
  std::string stopped;  ///< why it ended before `steps`; empty when it did not
};

struct Judgement {
  std::vector<Figure> figures;
  std::vector<Check> checks;
  std::vector<Finding> findings;
};

/// Figures, checks and findings of a run. Steps without targets are left out of those of loss and
/// gradient. Figures that the trace does not allow (too few steps) are empty with a reason. Checks:
/// lr_trace (P18), loss_floor (P14, synthetic tokens only), loss_diverged, stuck.* (P20; no finding
/// of its own where the loss diverged), path/STAGE (P07), loader_stall (P17), data_source (P16,
/// only when it fails).
Judgement judge(const TrainOptions& options, const RunFacts& facts,
                const std::vector<StepRecord>& trace);

}  // namespace nsa::train
