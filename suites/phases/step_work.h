#pragma once
#include <map>
#include <string>

#include "harness/trace/roofline.h"
#include "nsa/model/model_config.h"

namespace suites {

/// Sizes that decide how much a training step has to do.
struct StepShape {
  int64_t batch = 1, accum = 1, seq_len = 1;
  int64_t bytes_per_value = 2;  ///< of activations
};

/// What one training step needs at least, by range: operations of the products, and every input and
/// output of a range moved once. Keys are those that the definition reads: N_c(t+1) compressed, the
/// selected blocks up to t, min(w, t+1) of the window. A backward pass counts 2.5 forward passes of
/// an attention branch (five products instead of two).
std::map<std::string, harness::trace::AnalyticalWork> step_work(const nsa::ModelConfig& model,
                                                                const StepShape& shape);

/// Keys that all queries of one sequence read, added up: compressed, selected, window.
struct KeyCounts {
  double compressed = 0, selected = 0, window = 0;
};
KeyCounts count_keys(const nsa::NsaConfig& config, int64_t seq_len);

}  // namespace suites
