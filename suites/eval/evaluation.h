#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "nsa/layer/nsa_attention.h"
#include "suites/eval/inputs.h"
#include "suites/eval/layout.h"
#include "suites/eval/options.h"
#include "suites/reference_cases/case_config.h"

namespace suites::eval {

/// Inputs and results of one run of an operator.
struct Evaluation {
  const EvalOptions& options;
  const CaseConfig& given;
  nsa::NsaConfig config;
  Layout layout;
  InputTensors& in;
  nsa::NsaOptions backends;  ///< what --backend and the switches ask for
  std::string mode = "batched";
  std::vector<int64_t> prefill = {};  ///< in force, one a sequence; decode only
  std::map<std::string, at::Tensor> results = {};
  nsa::RunRecordPtr record = {};  ///< what all operators of this run write, backward passes too
  int64_t dropped_ids = 0;        ///< ids of a given block_idx outside 0..floor(t/l')
  int64_t unordered_ids = 0;      ///< others that the range conversion ignored
  /// Outputs that gradients flow into, and the input that holds their gradient.
  std::vector<std::pair<at::Tensor, at::Tensor>> seeds = {};

  /// Values above which p_cmp is written on request only.
  static constexpr int64_t kLargePCmp = 2'000'000;
  bool wants_p_cmp() const;
  int64_t width_of_scores() const { return config.num_sel_blocks(layout.longest()); }
  /// Throws std::invalid_argument for the first of these that cfg does not have. Every stage names
  /// the sizes it depends on; `config` has arbitrary values for the rest.
  void need(std::initializer_list<const char*> keys) const;
  /// The size that cfg gives, or any.
  int64_t size_or_any(const std::string& key) const;
  Axis kv_axis() const { return {"Hkv", size_or_any("Hkv")}; }
  /// [B, N_c, Hkv, last], packed [sum of N_c, Hkv, last].
  Axes block_axes(const Axis& last) const;
};

}  // namespace suites::eval
