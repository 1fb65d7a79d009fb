// One decode step of m7c_125m's attention behind a context, and what it reads. A step appends, so a
// context grows by the 66 steps of a benchmark.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/layer/random_inputs.h"
#include "suites/bench/bench.h"
#include "suites/instrument/host_syncs.h"

namespace suites {
namespace {

constexpr int64_t kSteps = 64;
constexpr int64_t kContexts[] = {512, 1024, 2048, 8192, 65536};
/// Filling a longer context takes minutes on a CPU.
constexpr int64_t kLongestOnCpu = 8192;

/// A step as one launch; an error where it is none.
nsa::NsaOptions one_launch() {
  nsa::NsaOptions options;
  options.sel = nsa::SelBackend::kFused;
  options.cmp = options.win = nsa::BranchBackend::kFused;
  options.strict_backend = true;
  return options;
}

void bench_decode(benchmark::State& state, int64_t context, bool fused, at::Device device,
                  uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::manual_seed(seed);
  const nsa::NsaConfig config = nsa::m7c_125m();
  const at::ScalarType type = device.is_cuda() ? at::kBFloat16 : at::kFloat;
  nsa::LayerCache cache(config, 1, context + 2 * kSteps,
                        at::TensorOptions().dtype(type).device(device));
  nsa::NsaOptions options;
  options.keep_scores = false;
  {
    const nsa::NsaInputs tokens =
        nsa::random_inputs(config, 1, context, at::TensorOptions().dtype(type).device(device));
    cache.prefill(tokens, {context}, options);
  }
  const nsa::NsaInputs token =
      nsa::random_inputs(config, 1, 1, at::TensorOptions().dtype(type).device(device));
  if (fused) options = one_launch();
  options.keep_scores = false;
  at::Tensor reads;
  const auto step = [&] { reads = cache.step(token, options).reads; };
  time_iterations(state, device, step);
  if (const auto syncs = count_host_syncs(device, step))
    state.counters["host_syncs"] = static_cast<double>(*syncs);
  const at::Tensor total = reads.sum(at::IntArrayRef{0, 1, 2}).cpu();
  const char* const names[] = {"reads_cmp", "reads_sel", "reads_win"};
  for (int64_t branch = 0; branch < 3; ++branch)
    state.counters[names[branch]] = static_cast<double>(total[branch].item<int64_t>());
  state.counters["cache_mib"] = static_cast<double>(cache.bytes()) / (1 << 20);
}

}  // namespace

void register_decode_benchmarks(at::Device device, uint64_t seed) {
  for (const int64_t context : kContexts) {
    if (!device.is_cuda() && context > kLongestOnCpu) continue;
    for (const bool fused : {false, true}) {
      if (fused && !device.is_cuda()) continue;
      const std::string name = "decode_step/m7c_B1_S" + std::to_string(context) +
                               (device.is_cuda() ? "_bf16" : "_fp32") + (fused ? "_fused" : "");
      benchmark::RegisterBenchmark(name.c_str(), bench_decode, context, fused, device, seed)
          ->UseManualTime()
          ->Iterations(kSteps)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace suites
