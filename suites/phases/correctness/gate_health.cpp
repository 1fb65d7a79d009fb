// Gates at initialisation: the spread of the last weight is what its rule gives, and outputs vary.
#include <ATen/ATen.h>

#include <cmath>

#include "nsa/ops/gate/gate.h"
#include "suites/compare/generators.h"
#include "suites/conformance/checks/check.h"
#include "suites/phases/phase.h"

namespace suites {
namespace {

using at::Tensor;

/// Rounding alone moves a constant gate by about 3e-8 in fp32; a gate that varies less than this is
/// stuck.
constexpr double kStuckSpread = 1e-6;

void emit_metric(const PhaseCase& one, const char* name, double value, const char* unit) {
  one.emitter.metric({.case_id = one.id, .name = name, .value = value, .unit = unit});
}

/// Smallest standard deviation over tokens of the three gates. gates [1, tokens, 1, 3].
double spread(const Tensor& gates) {
  return gates.flatten(0, 2).to(at::kDouble).std(0).min().item<double>();
}

void check_varies(const PhaseCase& one, const std::string& activation, int64_t layer, double seen) {
  const bool varies = seen >= kStuckSpread;
  one.emitter.check({.case_id = one.id,
                     .id = "varies/" + activation + "/" + std::to_string(layer),
                     .ok = varies,
                     .code = varies ? "" : code::kStuckMetric,
                     .detail = "smallest standard deviation over tokens " + std::to_string(seen),
                     .err = seen,
                     .tol = kStuckSpread});
}

/// What a gate at initialisation must not be: args.fault is stuck (no weights) or wide (twice the
/// spread).
double weight_factor(const PhaseCase& one) {
  const std::string fault = one.args.get_text("fault", "");
  if (fault.empty()) return 1;
  if (fault == "stuck") return 0;
  if (fault == "wide") return 2;
  throw ConfigError("args.fault of gate_health must be stuck or wide, got '" + fault + "'");
}

void look_at_layer(const PhaseCase& one, int64_t layer, int64_t dk, int64_t tokens) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(one.device);
  at::manual_seed(one.seed() + static_cast<uint64_t>(layer));
  const nsa::GateWeights weights = nsa::make_gate_weights(dk, options);
  weights.w2.detach().mul_(weight_factor(one));
  at::Generator g = make_generator(one.seed() + static_cast<uint64_t>(layer));
  const Tensor q = make_data({1, tokens, 1, dk}, DataKind::kNormal, g, at::kFloat).to(one.device);
  const Tensor logits = nsa::gate_mlp(q, weights, 1).detach();
  const double deviation = weights.w2.detach().to(at::kDouble).std().item<double>();
  emit_metric(one, "weight.std_min_ratio", deviation, "ratio");
  emit_metric(one, "weight.std_max_ratio", deviation, "ratio");
  const Tensor softmax = nsa::gate_activate(logits, nsa::GateActivation::kSoftmax).to(at::kDouble);
  const Tensor sigmoid = nsa::gate_activate(logits, nsa::GateActivation::kSigmoid).to(at::kDouble);
  emit_metric(one, "softmax.spread_min_ratio", spread(softmax), "ratio");
  emit_metric(one, "sigmoid.spread_min_ratio", spread(sigmoid), "ratio");
  const Tensor entropy = -(softmax * softmax.log()).sum(-1).mean();
  emit_metric(one, "softmax.entropy_min_nat", entropy.item<double>(), "nat");
  check_varies(one, "softmax", layer, spread(softmax));
  check_varies(one, "sigmoid", layer, spread(sigmoid));
}

}  // namespace

std::string run_gate_health(const PhaseCase& one) {
  const int64_t layers = one.args.get_int("layers", 12, 1), dk = one.args.get_int("dk", 64, 1),
                tokens = one.args.get_int("tokens", 256, 2);
  for (int64_t layer = 0; layer < layers; ++layer) {
    look_at_layer(one, layer, dk, tokens);
    one.emitter.beat({.case_id = one.id, .step = layer + 1, .of = layers, .at = "gate"});
  }
  return "";
}

}  // namespace suites
