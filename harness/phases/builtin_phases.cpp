#include "harness/phases/builtin_phases.h"

#include "harness/provenance/build/git.h"

namespace harness {

Builtins builtin_phases(std::filesystem::path bin_dir, std::filesystem::path configs) {
  if (bin_dir.empty()) bin_dir = program_folder();
  return {
      {"binaries_ab",
       [bin_dir](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_binaries_ab(bin_dir, call, emitter);
       }},
      {"threshold_edits",
       [](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_threshold_edits(this_checkout(), call, emitter);
       }},
      {"checkout",
       [bin_dir](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_checkout(bin_dir, this_checkout(), call, emitter);
       }},
      {"configuration",
       [bin_dir](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_configuration(bin_dir, call, emitter);
       }},
      {"ci_status", run_ci_status},
      {"counterfactual",
       [bin_dir](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_counterfactual_phase(bin_dir, call, emitter);
       }},
      {"dense_counterpart", run_dense_counterpart},
      {"diff_scope",
       [](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_diff_scope(this_checkout(), call, emitter);
       }},
      {"environment",
       [bin_dir](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_environment(bin_dir, this_checkout(), call, emitter);
       }},
      {"forecast", run_forecast},
      {"gap_analysis", run_gap_analysis},
      {"loss_gap", run_loss_gap},
      {"rate_gate", run_rate_gate},
      {"scaling", run_scaling},
      {"selftest", [bin_dir, configs](const BuiltinCall& call, base::protocol::Emitter& emitter) {
         run_selftest(bin_dir, configs, call, emitter);
       }}};
}

}  // namespace harness
