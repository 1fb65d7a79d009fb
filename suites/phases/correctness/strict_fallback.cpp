// NSA_STRICT_ASSERTS: an output that is not finite although its inputs are is computed anew by
// gather and recorded as REROUTED; nothing is rerouted where nothing is wrong.
#include <ATen/ATen.h>

#include <limits>

#include "suites/compare/compare.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/phases/attention_under_test.h"

namespace suites {
namespace {

using at::Tensor;

struct Trial {
  const PhaseCase& one;
  AttentionFunction attention;
  CaseConfig config;
  DenseInputs inputs;
  nsa::SelBackend backend;

  nsa::NsaOutputs run(bool strict, const DenseInputs& in) const {
    nsa::NsaOptions options;
    options.sel = backend;
    options.strict_asserts = strict;
    return attention(to_nsa(in), to_nsa(config), options);
  }

  void emit(const std::string& what, bool ok, const char* code, const std::string& detail) const {
    one.emitter.check({.case_id = one.id,
                       .id = what + "/" + nsa::to_string(backend),
                       .ok = ok,
                       .code = ok ? "" : code,
                       .detail = detail});
  }
};

/// Reason of the record that a selected branch was computed anew; empty without one.
std::string reroute_of(const nsa::NsaOutputs& out) {
  for (const nsa::RanBackend& row : out.ran)
    if (row.stage == "sel_attn" && row.reason.starts_with("REROUTED")) return row.reason;
  return "";
}

/// Keys and queries so large that logits overflow: finite inputs, also rotated, and an output that
/// is not.
DenseInputs overflowing(const DenseInputs& inputs) {
  DenseInputs in = inputs;
  in.k_sel = at::full_like(in.k_sel, 1e38);
  in.q = in.q * 1e4;
  return in;
}

void try_overflow(const Trial& trial) {
  const DenseInputs in = overflowing(trial.inputs);
  const nsa::NsaOutputs off = trial.run(false, in), on = trial.run(true, in);
  const bool provoked = !at::isfinite(off.o_sel).all().item<bool>();
  trial.emit(
      "provoked", provoked, code::kInvariant,
      provoked ? "the selected branch overflows" : "the output stayed finite: nothing tried");
  const std::string reason = reroute_of(on);
  trial.emit("rerouted", !reason.empty(), code::kPathProof,
             reason.empty()
                 ? "no record of a branch computed anew; ran " + ran_text(on.ran, "sel_attn")
                 : reason);
  trial.emit("silent_without", reroute_of(off).empty(), code::kPathProof,
             "without the switch nothing is computed anew");
}

void try_healthy(const Trial& trial) {
  const nsa::NsaOutputs off = trial.run(false, trial.inputs), on = trial.run(true, trial.inputs);
  trial.emit("no_false_alarm", reroute_of(on).empty(), code::kPathProof,
             "healthy inputs: ran " + ran_text(on.ran, "sel_attn"));
  const CompareReport same = compare_exact(on.o, off.o);
  trial.emit("same_bits", same.ok, code::kInvariant, same.text);
}

/// A token that is not finite may reach the rows that attend it and no other.
void try_bad_token(const Trial& trial) {
  DenseInputs in = trial.inputs;
  const int64_t bad = trial.config.tokens / 2;
  for (Tensor* x : {&in.v_sel, &in.v_win, &in.v_cmp_src}) {
    *x = x->clone();
    x->select(1, bad).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const Tensor before = trial.run(true, in).o.narrow(1, 0, bad);
  const bool clean = at::isfinite(before).all().item<bool>();
  trial.emit("contained", clean, code::kCausalityLeak,
             "rows before the token " + std::to_string(bad) + " that is NaN are " +
                 (clean ? "finite" : "not finite"));
}

}  // namespace

std::string run_strict_fallback(const PhaseCase& one) {
  CaseConfig config;
  config.tokens = one.args.get_int("S", 96, 8);
  const at::ScalarType type = input_type(one);
  const DenseInputs inputs = make_inputs(config, DataKind::kNormal, one.seed(), type, one.device);
  const auto backends = sel_backends(one.args, "backends", {"packed", "varlen", "masked"});
  const at::NoGradGuard no_grad;
  int64_t step = 0;
  for (const nsa::SelBackend backend : backends) {
    const Trial trial{one, attention_under_test(one.args), config, inputs, backend};
    try_overflow(trial);
    try_healthy(trial);
    try_bad_token(trial);
    one.emitter.beat({.case_id = one.id,
                      .step = ++step,
                      .of = static_cast<int64_t>(backends.size()),
                      .at = nsa::to_string(backend)});
  }
  return "";
}

}  // namespace suites
