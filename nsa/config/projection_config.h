#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace nsa {

/// What the logits of the gates are made from.
enum class GateProjection {
  kMlp,     ///< an MLP of the mean query of each group: gates for each KV head
  kLinear,  ///< a matrix times the layer's input: gates for each query head
};

/// Which projections make the inputs of an attention call from the layer's input. Torch-free.
struct ProjectionConfig {
  bool shared_kv = false;  ///< one K and V for the three branches; false: each has its own
  GateProjection gate = GateProjection::kMlp;
  /// Branches that take part, in the order compressed, selected, window; the gate of another one is
  /// 0 for every token. What a branch computes for others (the compressed one its choice of blocks)
  /// it still does.
  std::array<bool, 3> branch_on = {true, true, true};

  int64_t num_kv() const { return shared_kv ? 1 : 3; }  ///< matrices of K, and of V
  bool has_gate_mlp() const { return gate == GateProjection::kMlp; }
  bool all_branches() const { return branch_on == std::array{true, true, true}; }
};

/// "mlp", "linear". The parser throws std::invalid_argument naming the value and the choices.
std::string to_string(GateProjection projection);
GateProjection parse_gate_projection(const std::string& text);

}  // namespace nsa
