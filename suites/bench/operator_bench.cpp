// Forward of every plain operator at one size: the sizes of m7c_125m at S = 1024, one sequence,
// fp32.
#include <ATen/ATen.h>

#include "suites/bench/bench.h"
#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"
#include "suites/conformance/stages.h"

namespace suites {
namespace {

CaseConfig bench_config() {
  CaseConfig c;
  c.tokens = 1024;
  c.num_heads = 12;
  c.num_kv_heads = 2;
  c.qk_head_dim = c.v_head_dim = 64;
  c.block_size = 32;
  c.block_stride = 16;
  c.sel_block_size = 64;
  c.top_n = 16;
  c.window = 512;
  return c;
}

/// Inputs and every stage's output, made once.
struct Fixture {
  Candidate candidate = plain_candidate();
  CaseConfig config = bench_config();
  nsa::NsaConfig nsa_config = to_nsa(config);
  DenseInputs in;
  StageOutputs out;
  at::Tensor t;  ///< [1,S]

  Fixture(at::Device device, uint64_t seed)
      : in(make_inputs(config, DataKind::kNormal, seed, at::kFloat, device)),
        out(run_stages(candidate, config, in)),
        t(at::arange(config.tokens, at::kLong).unsqueeze(0).to(device)) {}
};

using Operator = void (*)(const Fixture& f);

struct Entry {
  const char* name;
  Operator run;
};

constexpr Entry kOperators[] = {
    {"rope", [](const Fixture& f) { f.candidate.rope(f.in.q, f.t[0], f.config.rope_base); }},
    {"compress",
     [](const Fixture& f) {
       f.candidate.compress(f.in.k_cmp_src, f.in.v_cmp_src, {}, {}, f.nsa_config);
     }},
    {"cmp_attn",
     [](const Fixture& f) {
       f.candidate.cmp_attn(f.out.q_rot, f.out.k_cmp, f.out.v_cmp, f.nsa_config, 0);
     }},
    {"scores",
     [](const Fixture& f) {
       f.candidate.scores(f.out.group_probs, f.config.num_sel_blocks(), f.nsa_config);
     }},
    {"select", [](const Fixture& f) { f.candidate.select(f.out.scores, f.t, f.nsa_config); }},
    {"sel_attn",
     [](const Fixture& f) {
       f.candidate.sel_attn(f.out.q_rot, f.out.k_sel_rot, f.in.v_sel, f.out.ranges, 0);
     }},
    {"win_attn",
     [](const Fixture& f) {
       f.candidate.win_attn(f.out.q_rot, f.out.k_win_rot, f.in.v_win, f.config.window, 0);
     }},
    {"layer", [](const Fixture& f) { f.candidate.layer(to_nsa(f.in), f.nsa_config, {}); }},
};

void bench_operator(benchmark::State& state, Operator run, at::Device device, uint64_t seed) {
  const Fixture fixture(device, seed);
  time_iterations(state, device, [&] { run(fixture); });
}

}  // namespace

void register_operator_benchmarks(at::Device device, uint64_t seed) {
  for (const Entry& entry : kOperators)
    benchmark::RegisterBenchmark(
        (std::string("forward/") + entry.name + "/m7c_B1_S1024_fp32").c_str(), bench_operator,
        entry.run, device, seed)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
}

}  // namespace suites
