// Range conversions at the historical size and at S = 8192; each is compared with the oracle before
// it is timed.
#include <ATen/ATen.h>

#include "nsa/reference/stages/ranges.h"
#include "suites/bench/bench.h"
#include "suites/compare/compare.h"
#include "suites/compare/generators.h"
#include "suites/conformance/convert.h"
#include "suites/phases/correctness/range_cases.h"

namespace suites {
namespace {

using at::Tensor;

constexpr int64_t kBatch = 2, kHeads = 4, kWidth = 32, kSelBlock = 64;

void bench_ranges(benchmark::State& state, nsa::RangesVersion version, int64_t tokens,
                  at::Device device, uint64_t seed) {
  at::Generator g = make_generator(seed);
  const int64_t blocks = std::max(kWidth, tokens / kSelBlock);
  const Tensor ids =
      std::get<0>(at::randint(0, blocks, {kBatch, tokens, kHeads, kWidth}, g, at::kLong).sort(-1))
          .to(at::kInt);
  const Tensor on_device = ids.to(device),
               t = at::arange(tokens, at::kLong).unsqueeze(0).to(device);
  const Tensor expected = from_reference(nsa::reference::ranges(to_reference_ids(ids), kSelBlock));
  const CompareReport report =
      compare_exact(nsa::block_ranges(version, on_device, t, kSelBlock).cpu(), expected);
  if (!report.ok)
    return state.SkipWithError(("not valid, output mismatch: " + report.text).c_str());
  time_iterations(state, device, [&] { nsa::block_ranges(version, on_device, t, kSelBlock); });
}

}  // namespace

void register_ranges_benchmarks(at::Device device, uint64_t seed) {
  for (auto version : range_versions())
    for (const int64_t tokens : {256, 8192}) {
      const std::string name =
          "ranges/" + to_string(version) + "/B2_S" + std::to_string(tokens) + "_Hkv4_K32";
      benchmark::RegisterBenchmark(name.c_str(), bench_ranges, version, tokens, device, seed)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
}

}  // namespace suites
