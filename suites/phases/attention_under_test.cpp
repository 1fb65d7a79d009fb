#include "suites/phases/attention_under_test.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"
#include "suites/conformance/checks/operator_checks.h"
#include "suites/faults/faults.h"

namespace suites {
namespace {

nsa::NsaOutputs with_placeholder(const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                                 const nsa::NsaOptions& options) {
  nsa::NsaOutputs out = nsa::nsa_attention(inputs, config, options);
  if (options.sel == nsa::SelBackend::kGather) return out;
  out.o_sel = at::zeros_like(out.o_sel);
  out.o = out.o * 0;
  return out;
}

nsa::NsaOutputs without_reroute(const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                                const nsa::NsaOptions& options) {
  nsa::NsaOptions other = options;
  other.strict_asserts = false;
  return nsa::nsa_attention(inputs, config, other);
}

/// Gather runs, but the record names the requested backend: only kernel names disprove it.
nsa::NsaOutputs with_false_record(const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                                  const nsa::NsaOptions& options) {
  nsa::NsaOptions other = options;
  other.sel = nsa::SelBackend::kGather;
  nsa::NsaOutputs out = nsa::nsa_attention(inputs, config, other);
  for (nsa::RanBackend& row : out.ran)
    if (row.stage == "sel_attn") row.backend = row.requested = nsa::to_string(options.sel);
  return out;
}

/// Memory of 32 x S x S, as an attention that keeps the scores of its heads has it.
nsa::NsaOutputs with_all_scores(const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                                const nsa::NsaOptions& options) {
  nsa::NsaOutputs out = nsa::nsa_attention(inputs, config, options);
  const int64_t tokens = out.o.size(1);
  const at::Tensor scores = at::ones({32, tokens, tokens}, out.o.options());
  out.o = out.o * (scores.sum() / scores.numel()).detach();
  return out;
}

}  // namespace

AttentionFunction attention_under_test(const Args& args) {
  const std::string fault = args.get_text("fault", "");
  if (fault.empty()) return nsa::nsa_attention;
  if (fault == "P06") return with_placeholder;
  if (fault == "P07/record") return with_false_record;
  if (fault == "no_reroute") return without_reroute;
  if (fault == "all_scores") return with_all_scores;
  try {
    return with_fault(plain_candidate(), fault).layer;
  } catch (const c10::Error& error) {
    throw ConfigError(error.what_without_backtrace());
  }
}

SelAttnFunction sel_attn_under_test(const Args& args) {
  const std::string fault = args.get_text("fault", "");
  const bool broken = fault == "empty_row_nan", replaced = fault == "P07/sel_attn";
  if (!fault.empty() && !broken && !replaced)
    throw ConfigError("args.fault must be empty_row_nan or P07/sel_attn, got '" + fault + "'");
  return [broken, replaced](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& ranges, nsa::SelAttnOptions options) {
    if (replaced) options.backend = nsa::SelBackend::kGather;
    auto [out, lse] = nsa::sel_attn(q, k, v, ranges, 0, options);
    if (broken) out = out.masked_fill(at::isinf(lse).unsqueeze(-1), NAN);
    return std::pair{out, lse};
  };
}

Candidate candidate_under(const nsa::NsaOptions& asked) {
  const nsa::NsaOptions options = asked.effective();
  Candidate candidate = plain_candidate();
  candidate.sel_attn = [sel = nsa::SelAttnOptions{options.sel, options.safe_pack}](
                           const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& ranges, int64_t first_position) {
    return nsa::sel_attn(q, k, v, ranges, first_position, sel);
  };
  candidate.cmp_attn = [cmp = nsa::BranchOptions{options.cmp}](
                           const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const nsa::NsaConfig& config, int64_t first_position) {
    return nsa::cmp_attn(q, k, v, config, first_position, cmp);
  };
  candidate.win_attn = [win = nsa::BranchOptions{options.win}](
                           const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           int64_t window, int64_t first_position) {
    return nsa::win_attn(q, k, v, window, first_position, win);
  };
  candidate.runs["sel_attn"] = nsa::to_string(options.sel);
  // The library's window refuses shapes and types, with a record: no path to prove.
  if (options.win != nsa::BranchBackend::kPlain) candidate.runs.erase("win_attn");
  candidate.layer = [options](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                              const nsa::NsaOptions& own) {
    nsa::NsaOptions both = options;
    both.ranges = own.ranges;
    both.keep_scores = own.keep_scores;
    both.block_idx = own.block_idx;
    return nsa::nsa_attention(inputs, config, both);
  };
  return candidate;
}

Checks judge_gradients(const PhaseCase& one, CaseConfig config, const nsa::SelAttnOptions& options,
                       at::ScalarType type, const std::string& name) {
  constexpr int64_t kTokens = 160;  // two selection blocks and a part
  nsa::NsaOptions whole;
  whole.sel = options.backend;
  whole.safe_pack = options.safe_pack;
  config.batch = 1;
  config.tokens = std::min(config.tokens, kTokens);
  OperatorCase small;
  small.config = config;
  small.type = type;
  small.device = one.device;
  small.seed = one.seed();
  small.name = name;
  return check_gradients(candidate_under(whole), small);
}

std::string ran_text(const std::vector<nsa::RanBackend>& ran, const std::string& stage) {
  std::string text;
  for (const nsa::RanBackend& row : ran) {
    if (row.stage != stage || row.count == 0) continue;
    text += (text.empty() ? "" : ", ") + row.backend +
            (row.detail.empty() ? "" : " (" + row.detail + ")");
  }
  return text.empty() ? "nothing" : text;
}

base::protocol::Check path_check(const PhaseCase& one, const std::vector<nsa::RanBackend>& ran,
                                 const std::string& want, const std::string& name) {
  int64_t rows = 0;
  std::string why;
  for (const nsa::RanBackend& row : ran) {
    if (row.stage != "sel_attn" || row.count == 0) continue;
    ++rows;
    if (row.backend != want) why += row.reason.empty() ? "no reason given" : row.reason;
  }
  const bool as_wanted = rows > 0 && why.empty();
  return {.case_id = one.id,
          .id = "path/" + name,
          .ok = as_wanted,
          .code = as_wanted ? "" : code::kPathProof,
          .detail = "requested " + want + ", ran " + ran_text(ran, "sel_attn") +
                    (why.empty() ? "" : ": " + why)};
}

std::string emit_checks(const PhaseCase& one, const Checks& checks) {
  std::string failed;
  for (const Check& check : checks) {
    one.emitter.check({.case_id = one.id,
                       .id = check.id,
                       .ok = check.ok,
                       .code = check.code,
                       .detail = check.detail,
                       .err = check.err,
                       .tol = check.tol});
    if (!check.ok) failed += (failed.empty() ? "" : ", ") + check.id;
  }
  return failed;
}

at::ScalarType input_type(const PhaseCase& one) {
  const std::string name = one.args.get_text("dtype", "");
  if (name.empty()) return one.device.is_cuda() ? at::kBFloat16 : at::kFloat;
  return named_type(name);
}

at::ScalarType named_type(const std::string& name) {
  try {
    return parse_dtype(name);
  } catch (const c10::Error& error) {
    throw ConfigError(error.what_without_backtrace());
  }
}

std::vector<nsa::SelBackend> sel_backends(const Args& args, const char* key,
                                          const std::vector<std::string>& fallback) {
  std::vector<nsa::SelBackend> backends;
  for (const std::string& name : args.get_list(key, fallback)) {
    try {
      backends.push_back(nsa::parse_sel_backend(name));
    } catch (const std::invalid_argument& error) {
      throw ConfigError("args." + std::string(key) + ": " + error.what());
    }
  }
  return backends;
}

}  // namespace suites
