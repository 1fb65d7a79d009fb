#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nsa/layer/nsa_attention.h"
#include "suites/conformance/case_config.h"
#include "suites/conformance/checks/check.h"
#include "suites/faults/candidate.h"
#include "suites/phases/phase.h"

/// What the phases that time or measure whole calls run; `args.fault` puts a known fault in its
/// place.
namespace suites {

using AttentionFunction = std::function<nsa::NsaOutputs(
    const nsa::NsaInputs& inputs, const nsa::NsaConfig& config, const nsa::NsaOptions& options)>;

/// nsa_attention. Faults: P06, every selection backend but gather is a placeholder; P07/record,
/// gather runs whatever is recorded; no_reroute, strict asserts are ignored; any of suites/faults
/// that wraps the layer. Throws ConfigError naming the nearest id.
AttentionFunction attention_under_test(const Args& args);

using SelAttnFunction = std::function<std::pair<at::Tensor, at::Tensor>(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& ranges,
    const nsa::SelAttnOptions& options)>;

/// nsa::sel_attn. Fault: empty_row_nan, the softmax of a row without keys is 0/0.
SelAttnFunction sel_attn_under_test(const Args& args);

/// The operators of nsa/ with the backends that the switches ask for.
Candidate candidate_under(const nsa::NsaOptions& options);

/// Gradients of every input against the oracle, the selected branch computed with `options`, at a
/// length at which whole tensors can be judged.
Checks judge_gradients(const PhaseCase& one, CaseConfig config, const nsa::SelAttnOptions& options,
                       at::ScalarType type, const std::string& name);

/// What ran for a stage of a call, "varlen (flash)", several joined by ", "; "nothing" without one.
std::string ran_text(const std::vector<nsa::RanBackend>& ran, const std::string& stage);

/// Check "path/NAME": the selected branch ran the backend `want` and nothing else.
base::protocol::Check path_check(const PhaseCase& one, const std::vector<nsa::RanBackend>& ran,
                                 const std::string& want, const std::string& name);

/// Reports every check; returns the names of the failed ones, joined, empty when none failed.
std::string emit_checks(const PhaseCase& one, const Checks& checks);

/// "fp64", "fp32", "bf16", "fp16". Throws ConfigError naming the value.
at::ScalarType named_type(const std::string& name);

/// The input type of `args.dtype`; without one bf16 on CUDA, fp32 on a CPU.
at::ScalarType input_type(const PhaseCase& one);

/// Backends named by `args.KEY`. Throws ConfigError.
std::vector<nsa::SelBackend> sel_backends(const Args& args, const char* key,
                                          const std::vector<std::string>& fallback);

}  // namespace suites
