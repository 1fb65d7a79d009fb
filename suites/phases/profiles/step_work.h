#pragma once
#include <map>
#include <string>

#include "harness/trace/analysis/roofline.h"
#include "nsa/model/model_config.h"

namespace suites {

/// Sizes that decide how much a training step has to do.
struct StepShape {
  int64_t batch = 1, accum = 1, seq_len = 1;
  int64_t bytes_per_value = 2;  ///< of activations
};

/// What one training step needs at least, by range: operations of the products, and every input and
/// output of a range moved once between the device's memory and its processors. With X the keys
/// that all queries of a sequence read (KeyCounts):
///   attention forward   FLOP 2 (dk+dv) Hq X,  values (dk+dv) (Hq S + Hkv keys)
///   attention backward  FLOP (6 dk + 4 dv) Hq X (five products), twice the values: each tensor and
///                       its gradient, the output and its gradient
///   compression, mean   FLOP l (dk+dv) Hkv N_c, values (dk+dv) Hkv (S + N_c)
///   RoPE                q and three key sources read and written
///   gates               three outputs and the logits read, one output written
///   products            2 tokens in out; activations and weights once
/// Scores, exponentials and selection are left out: they need no bytes beyond the branch's, and no
/// ceiling of theirs is measured. So a percentage is never too high for what they cost.
std::map<std::string, harness::trace::AnalyticalWork> step_work(const nsa::ModelConfig& model,
                                                                const StepShape& shape);

/// The same for the operator alone (one layer, no rotation, compression by means): its ranges of
/// step_work without ".backward" added up, and those with it.
struct OperatorWork {
  harness::trace::AnalyticalWork forward, backward;
};
OperatorWork operator_work(const nsa::NsaConfig& config, const StepShape& shape);

/// Keys that all queries of one sequence read, added up: compressed, selected, window.
struct KeyCounts {
  double compressed = 0, selected = 0, window = 0;
};
KeyCounts count_keys(const nsa::NsaConfig& config, int64_t seq_len);

}  // namespace suites
