#include "suites/bench/overhead_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "nsa/api/attention_call.h"
#include "suites/bench/targets/case_row.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"

namespace suites {
namespace {

using nlohmann::json;

constexpr double kOverheadTargetUs = 10;
constexpr int kCallsOfRound = 20;

/// A size at which the host's part of a call is most of it; on a GPU one that the kernels cover.
CaseConfig tiny_case(bool on_cuda) {
  CaseConfig c;
  c.tokens = on_cuda ? 64 : 4;
  c.num_heads = 2, c.num_kv_heads = 1;
  c.qk_head_dim = c.v_head_dim = on_cuda ? 64 : 8;
  c.block_size = on_cuda ? 32 : 4, c.block_stride = on_cuda ? 16 : 4;
  c.sel_block_size = on_cuda ? 64 : 4;
  c.window = 16;
  return c;
}

nsa::AttentionCall tiny_call(const CaseConfig& c, at::Device device, bool differentiable) {
  const auto options =
      at::TensorOptions(device).dtype(device.is_cuda() ? at::kBFloat16 : at::kFloat);
  const auto draw = [&](int64_t heads, int64_t dim) {
    return at::randn({c.batch, c.tokens, heads, dim}, options).requires_grad_(differentiable);
  };
  nsa::AttentionCall call;
  call.tensors[0] = draw(c.num_heads, c.qk_head_dim);
  call.tensors[1] = draw(c.num_kv_heads, c.qk_head_dim);
  call.tensors[2] = draw(c.num_kv_heads, c.v_head_dim);
  call.tensors[3] = draw(c.num_heads, 3);
  call.config.block_size = c.block_size, call.config.block_stride = c.block_stride;
  call.config.sel_block_size = c.sel_block_size;
  call.config.top_n = c.top_n, call.config.window = c.window;
  call.take_tensor_sizes();
  return call;
}

/// Time of the host for a call, us: nothing is waited for inside.
double host_us_of(at::Device device, const std::function<void()>& work) {
  synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCallsOfRound; ++i) work();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / kCallsOfRound;
}

json percentiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    return samples[static_cast<size_t>(part * static_cast<double>(samples.size() - 1))];
  };
  return {{"n", samples.size()}, {"median", at(.5)}, {"p10", at(.1)}, {"p90", at(.9)}};
}

/// The layer's call as the operator's kernel makes it: without a graph, below autograd's dispatch
/// keys. With them every operator inside costs more than the whole call through one operator.
at::Tensor layer_result(const nsa::NsaInputs& in, const nsa::NsaConfig& config,
                        const nsa::NsaOptions& options) {
  const at::NoGradGuard no_graph;
  const at::AutoDispatchBelowADInplaceOrView below;
  return nsa::nsa_attention(in, config, options).o;
}

void time_overhead(const CaseConfig& config, at::Device device, bool differentiable, int64_t rounds,
                   json& row) {
  const nsa::AttentionCall call = tiny_call(config, device, differentiable);
  const auto& x = call.tensors;  // q, k, v, gates
  const nsa::NsaOptions options = nsa::whole_call_options(call.backend, call.strict, call.q());
  const nsa::NsaInputs in = nsa::layer_inputs(call);
  at::Tensor by_operator, direct;
  const std::function<void()> arms[2] = {
      [&] { by_operator = nsa::attention(x[0], x[1], x[2], x[3], call.config); },
      [&] { direct = layer_result(in, call.config, options); }};
  std::vector<double> times[2], more;
  for (int64_t round = -3; round < rounds; ++round) {  // 3 warm up; arms are first alternately
    double us[2] = {};
    for (const int64_t place : {int64_t{0}, int64_t{1}}) {
      const auto arm = static_cast<size_t>((place + round) & 1);
      us[arm] = host_us_of(device, arms[arm]);
    }
    if (round < 0) continue;
    for (size_t arm = 0; arm < 2; ++arm) times[arm].push_back(us[arm]);
    more.push_back(us[0] - us[1]);
  }
  row["checks_run"] = 1;
  if (!by_operator.equal(direct))
    row["problems"].push_back("operator and layer call gave different bits");
  row["operator_us"] = percentiles(times[0]);
  row["direct_us"] = percentiles(times[1]);
  row["more_us"] = percentiles(more);
  row["target_us"] = kOverheadTargetUs;
  row["met"] = row["more_us"]["median"].get<double>() <= kOverheadTargetUs;
}

}  // namespace

json run_overhead_bench(at::Device device, const TargetBenchOptions& options, int64_t rounds) {
  json report = bench_report(device, options.seed);
  at::manual_seed(options.seed);
  const CaseConfig config = tiny_case(device.is_cuda());
  for (const bool differentiable : {false, true}) {
    const std::string id = differentiable ? "tiny_autograd" : "tiny_inference";
    if (id.find(options.filter) == std::string::npos) continue;
    json row = run_case(id, config, device, [&](json& out) {
      out["dtype"] = device.is_cuda() ? "bf16" : "fp32";
      time_overhead(config, device, differentiable, rounds, out);
    });
    if (row.contains("more_us"))
      std::fprintf(stderr, "%s: operator %.1f us, layer %.1f us, %.1f [%.1f, %.1f] us more\n",
                   id.c_str(), row["operator_us"]["median"].get<double>(),
                   row["direct_us"]["median"].get<double>(), row["more_us"]["median"].get<double>(),
                   row["more_us"]["p10"].get<double>(), row["more_us"]["p90"].get<double>());
    for (const json& problem : row.at("problems"))
      std::fprintf(stderr, "%s: %s\n", id.c_str(), problem.get<std::string>().c_str());
    report["cases"].push_back(std::move(row));
    options.keep(report);
  }
  require_cases(report, options.filter);
  return report;
}

}  // namespace suites
