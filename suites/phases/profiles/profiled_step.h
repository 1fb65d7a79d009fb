#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/trace/analysis/roofline.h"
#include "nsa/train/ranks/rank_group.h"
#include "suites/phases/phase.h"

namespace suites {

/// What a profile looks at: one step of training, or one call of the attention operator.
struct ProfiledStep {
  std::string range;  ///< name of the range around each step
  int64_t seq_len = 0;
  int64_t tokens = 0;  ///< of a step
  at::ScalarType type = at::kFloat;
  /// Runs one step; its wall time, the wait for the device included.
  std::function<double()> run_ms = {};
  /// No step follows; before the ranks of a step leave their group.
  std::function<void()> finish = [] {};
  std::function<std::vector<nsa::RanBackend>()> ran = {};           ///< what ran in the last steps
  std::map<std::string, harness::trace::AnalyticalWork> work = {};  ///< of one step, by range
};

/// `args.subject`: "train" (an optimizer step of args.model on fresh random tokens) or "attention"
/// (a forward call with the model's attention; Hq, Hkv, dk replace its sizes). args: model
/// (m7c_125m), S (0: the model's), B (1), accum (4, training only), cuda_graph (false,
/// training only), dtype (bf16 on CUDA), backend
/// (auto, switches: as nsa-train's; gather, ..., fused: of all branches). `seq_len` > 0 replaces S.
/// `ranks`: the group that trains, null for one process; it outlives the step.
/// Fault P09: results are read one element at a time. Throws ConfigError.
ProfiledStep make_profiled_step(const PhaseCase& one, nsa::train::RankGroup* ranks = nullptr,
                                int64_t seq_len = 0);

}  // namespace suites
