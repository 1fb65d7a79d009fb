#pragma once
#include <cmath>
#include <cstdint>
#include <optional>

namespace nsa::train {

/// Gate outputs of one forward pass, each gate row normalised to sum 1 before its entropy is taken;
/// all 0 for a model without gates.
struct GateStats {
  double cmp = 0, sel = 0, win = 0;  ///< mean gate over tokens, heads and layers, as applied
  double entropy = 0;                ///< mean entropy, nat
  double layer_entropy_min = 0;      ///< entropy of the layer with the lowest mean entropy, nat
  double layer_entropy_max = 0;      ///< ... with the highest
  /// Standard deviation over tokens in the layer where it is smallest; infinite where all tokens
  /// were the same one, whose gates need not differ.
  double layer_spread_min = 0;
  /// No activation of gates gives three zeros; NaN counts as known.
  bool known() const { return cmp + sel + win != 0; }
};

/// What one optimizer step did.
struct StepRecord {
  int64_t step = 0;  ///< 1-based
  int64_t rows = 0;  ///< rows consumed since the start, this step included
  /// That the loss is over, of all micro-batches and ranks; -1: not known (old checkpoints).
  int64_t targets = -1;
  double loss = 0;             ///< mean over the step's targets, nat; NaN without any
  double grad_norm = 0;        ///< L2 norm of all gradients before clipping
  double lr = 0;               ///< learning rate the optimizer applied
  int64_t schedule_steps = 0;  ///< length of the schedule that lr is of; 0: the run's
  double load_ms = 0;
  double forward_ms = 0, backward_ms = 0, optimizer_ms = 0;  ///< NaN: one launch did all three
  double collective_ms = 0;  ///< with the other ranks, behind the backward pass
  double step_ms = 0;        ///< wall time of the step, device work included
  double tok_s = 0;          ///< trained tokens per second
  double mem_mib = 0;        ///< device memory allocated (CPU: resident set) at the step's end
  double peak_mib = 0;  ///< largest device memory during the step (CPU: resident set at its end)
  GateStats gate;
  std::optional<double> validation_loss = {};      ///< nat, behind this step; where it was measured
  std::optional<double> validation_accuracy = {};  ///< share of its targets that were right

  /// A step without targets trains nothing: it has no loss and changes no weight.
  bool has_targets() const { return targets != 0; }
  bool is_finite() const {
    return (!has_targets() || std::isfinite(loss)) && std::isfinite(grad_norm);
  }
};

}  // namespace nsa::train
