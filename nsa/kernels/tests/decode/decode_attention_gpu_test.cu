// The decode step against plain fp64 loops on the host. No LibTorch.
//   decode_attention_gpu_test                   correctness; ends with 77 without a CUDA device
//   decode_attention_gpu_test --time [NAME]     figures of the targets, with and without a graph
//   decode_attention_gpu_test --sweep [NAME]    the same for every cut; --once NAME: one launch
#include <cstdio>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "nsa/kernels/decode/decode_attention.h"
#include "nsa/kernels/decode/decode_problem.cuh"
#include "nsa/kernels/tests/decode/decode_judge.cuh"
#include "nsa/kernels/tests/decode/decode_timing.cuh"

namespace {

template <typename V>
bool same(const std::vector<V>& a, const std::vector<V>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0;
}

/// Poisons every selected token that no head of its sequence attends, steps back one token and
/// repeats the step: the outputs must keep their bits.
template <typename T>
bool repeats(World<T>& w, const std::vector<int64_t>& before) {
  const Copy<T> first(w);
  const Case& c = w.c;
  std::vector<T> k = first.sel_k, v = first.sel_v;
  const uint16_t nan_bits = 0x7fff;
  T bad;
  std::memcpy(&bad, &nan_bits, 2);
  for (int entry = 0; entry < c.batch(); ++entry)
    for (int kv = 0; kv < c.kv_heads; ++kv) {
      std::set<int> ids;
      for (int token = 0; token < c.tokens; ++token)
        for (int i = 0; i < c.n; ++i)
          ids.insert(
              first.block_idx[((size_t(entry) * c.tokens + token) * c.kv_heads + kv) * c.n + i]);
      const int s = static_cast<int>(first.sequences[entry]);
      for (int t = 0; t < before[s] + c.tokens; ++t) {
        if (ids.count(t / c.block) > 0) continue;
        const int64_t row = w.selected.row(s, t, c.page) * c.kv_heads + kv;
        std::fill_n(k.begin() + row * c.dk, c.dk, bad);
        std::fill_n(v.begin() + row * c.dv, c.dv, bad);
      }
    }
  w.selected.k.set(k), w.selected.v.set(v);
  w.num_tokens.set(before);
  check(nsa::kernels::decode_attention(w.problem(), nullptr), "decode_attention");
  check(cudaDeviceSynchronize(), "repeated step");
  const Copy<T> second(w);
  w.selected.k.set(first.sel_k), w.selected.v.set(first.sel_v);
  const bool equal = same(first.out, second.out) && same(first.o[1], second.o[1]) &&
                     same(first.block_idx, second.block_idx) && same(first.lse[1], second.lse[1]) &&
                     same(first.scores, second.scores) && same(first.reads, second.reads) &&
                     same(first.o[0], second.o[0]) && same(first.o[2], second.o[2]);
  if (!equal) std::printf("FAILED %s: a repeated step with poison differs\n", c.name.c_str());
  return equal;
}

/// The steps of a case, launched one by one or replayed from a graph of one launch.
template <typename T>
bool run_case(const Case& c, bool by_graph) {
  World<T> w(c);
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  cudaGraphExec_t graph = nullptr;
  const DecodeAttention p = w.problem();
  if (const char* reason = nsa::kernels::unsupported_reason(p)) {
    std::printf("FAILED %s: %s\n", c.name.c_str(), reason);
    return false;
  }
  if (by_graph) {
    cudaGraph_t captured;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    check(nsa::kernels::decode_attention(p, stream), "decode_attention");
    check(cudaStreamEndCapture(stream, &captured), "capture");
    check(cudaGraphInstantiate(&graph, captured, 0), "graph");
    check(cudaGraphDestroy(captured), "graph");
  }
  bool good = true;
  for (int step = 0; step < c.steps && good; ++step) {
    const std::vector<int64_t> before = w.num_tokens.host();
    w.draw_token();
    w.out.fill(0x7f), w.o_cmp.fill(0x7f), w.o_sel.fill(0x7f), w.o_win.fill(0x7f);
    w.lse_cmp.fill(0x7f), w.reads.fill(0x7f), w.block_idx.fill(0x7f), w.scores.fill(0x7f);
    check(cudaDeviceSynchronize(), "token");
    check(by_graph ? cudaGraphLaunch(graph, stream) : nsa::kernels::decode_attention(p, stream),
          "step");
    check(cudaDeviceSynchronize(), "step");
    good = judge_step(w, before, step);
    if (good && step == c.steps - 1) good = repeats(w, before);
  }
  if (graph != nullptr) check(cudaGraphExecDestroy(graph), "graph");
  check(cudaStreamDestroy(stream), "stream");
  std::printf("%-8s %s %s%s\n", good ? "ok" : "FAILED", c.name.c_str(),
              std::is_same<T, __half>::value ? "fp16" : "bf16", by_graph ? " graph" : "");
  std::fflush(stdout);
  return good;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, std::vector<int> lengths, int group, int kv_heads, int dk,
                       int dv, int capacity, const std::function<void(Case&)>& change = {}) {
    Case c;
    c.name = name + " G " + std::to_string(group) + " Hkv " + std::to_string(kv_heads) + " " +
             std::to_string(dk) + "/" + std::to_string(dv) + " B " + std::to_string(lengths.size());
    c.lengths = lengths, c.group = group, c.kv_heads = kv_heads, c.dk = dk, c.dv = dv;
    c.capacity = capacity;
    if (change) change(c);
    all.push_back(c);
  };
  const int dims[][2] = {{64, 64}, {128, 128}, {192, 128}};
  for (const auto& d : dims) {
    add("empty cache", {0}, 4, 2, d[0], d[1], 200, [](Case& c) { c.steps = 70; });
    add("short", {0, 1, 30, 31, 32, 47, 62, 63, 64, 65}, 16, 1, d[0], d[1], 256,
        [](Case& c) { c.steps = 3; });
    for (int group : {1, 2, 3, 6, 8, 16})
      add("lengths apart", {2047, 100, 510}, group, 2, d[0], d[1], 2300,
          [](Case& c) { c.steps = 3, c.gate = GateFunction::kSigmoid; });
    add("window wraps", {500, 511, 512, 1020}, 4, 2, d[0], d[1], 1100,
        [](Case& c) { c.steps = 20, c.gate_heads = 2; });
    add("ties", {1500, 3000, 800}, 6, 2, d[0], d[1], 3100,
        [](Case& c) { c.equal_keys = true, c.steps = 2; });
    for (int ranks : {1, 2, 4, 8, 16})
      for (int warps : {4, 6, 8})
        for (bool sums : {false, true})
          add("cut " + std::to_string(ranks) + " x " + std::to_string(warps) +
                  (sums ? " sums" : ""),
              {2500, 15, 700}, sums ? 7 : 4, 2, d[0], d[1], 2600,
              [&](Case& c) { c.ranks = ranks, c.warps = warps, c.unit_sums = sums, c.steps = 2; });
    for (int ranks : {1, 4}) {
      for (float scale : {1.f, 8.f})
        add("repeated keys", {4000, 2100}, 6, 2, d[0], d[1], 4200, [&](Case& c) {
          c.repeated = c.unit_sums = true, c.q_scale = scale, c.ranks = ranks, c.warps = 4;
        });
      add("sharp with sums", {3000, 1777}, 16, 1, d[0], d[1], 3100, [&](Case& c) {
        c.q_scale = 6.f, c.steps = 2, c.ranks = ranks, c.warps = 4, c.unit_sums = true;
      });
    }
    add("steps with sums", {500, 1000, 30}, 16, 1, d[0], d[1], 1200,
        [](Case& c) { c.unit_sums = true, c.ranks = 2, c.warps = 4, c.steps = 70; });
    add("ties with sums", {1500, 3000, 800}, 6, 2, d[0], d[1], 3100,
        [](Case& c) { c.equal_keys = c.unit_sums = true, c.ranks = 4, c.warps = 8, c.steps = 2; });
    add("sharp", {3000, 1777}, 8, 2, d[0], d[1], 3100,
        [](Case& c) { c.q_scale = 6.f, c.steps = 2; });
  }
  std::vector<int> many;
  for (int i = 0; i < 33; ++i) many.push_back(i * 61 % 1900);
  add("many", many, 6, 2, 64, 64, 2048, [](Case& c) { c.steps = 2; });
  add("many", many, 16, 4, 192, 128, 2048);
  add("the longest first", many, 16, 4, 192, 128, 2048,
      [](Case& c) { c.longest_first = true, c.steps = 2; });
  add("pages of 48", {1000, 1411}, 4, 2, 128, 128, 1500,
      [](Case& c) { c.page = 48, c.steps = 18; });
  add("one page", {1000, 1411}, 4, 2, 128, 128, 1500,
      [](Case& c) { c.page = 1500, c.rope_base = 0; });
  add("other sizes", {300, 77, 911}, 5, 3, 64, 64, 1000, [](Case& c) {
    c.l = 24, c.d = 8, c.block = 40, c.n = 7, c.initial = 2, c.local = 1, c.window = 100,
    c.page = 33;
    c.steps = 30, c.gate = GateFunction::kNone;
  });
  add("blocks as long as strides", {300, 77, 911}, 2, 1, 64, 64, 1000, [](Case& c) {
    c.l = 16, c.d = 16, c.block = 16, c.n = 32, c.initial = 0, c.local = 3, c.window = 3000;
    c.steps = 20;
  });
  for (const auto& d : dims) {
    for (int tokens : {2, 5, 8})
      add(std::to_string(tokens) + " tokens", {2047, 100, 0, 505, 63}, 16, 1, d[0], d[1], 2300,
          [&](Case& c) { c.tokens = tokens, c.steps = 9, c.longest_first = tokens == 5; });
    for (int ranks : {1, 2, 4, 8, 16})
      for (bool sums : {false, true})
        add("8 tokens, " + std::to_string(ranks) + " x 8" + (sums ? " sums" : ""), {2500, 9, 1020},
            sums ? 7 : 4, 2, d[0], d[1], 2600, [&](Case& c) {
              c.tokens = 8, c.ranks = ranks, c.warps = 8, c.unit_sums = sums, c.steps = 5;
            });
  }
  add("8 tokens of many", many, 6, 2, 64, 64, 2048, [](Case& c) { c.tokens = 8, c.steps = 3; });
  add("8 tokens, other sizes", {300, 77, 911}, 5, 3, 64, 64, 1000, [](Case& c) {
    c.l = 24, c.d = 8, c.block = 40, c.n = 7, c.initial = 2, c.local = 1, c.window = 5;
    c.tokens = 8, c.page = 33, c.steps = 9, c.gate = GateFunction::kNone;
  });
  add("long", {40000}, 16, 4, 192, 128, 40100);
  return all;
}

/// A sequence longer than promised gets NaN and stays as it is; the others do not notice.
bool refuses_long_sequences() {
  Case c;
  c.lengths = {290, 100}, c.group = 4, c.kv_heads = 2, c.dk = 64, c.dv = 64, c.capacity = 300;
  World<__nv_bfloat16> w(c);
  w.draw_token();
  DecodeAttention p = w.problem();
  p.max_tokens = 200;
  check(nsa::kernels::decode_attention(p, nullptr), "decode_attention");
  check(cudaDeviceSynchronize(), "step");
  const Copy<__nv_bfloat16> copy(w);
  bool good = copy.num_tokens[0] == 290 && copy.num_tokens[1] == 101;
  for (size_t i = 0; i < copy.out.size(); ++i) {
    const bool is_long = copy.sequences[i / (c.heads() * c.dv)] == 0;
    good = good && std::isnan(static_cast<float>(copy.out[i])) == is_long;
  }
  std::printf("%-8s a sequence longer than promised\n", good ? "ok" : "FAILED");
  return good;
}

int run_cases() {
  int failed = refuses_long_sequences() ? 0 : 1, run = 1;
  for (const Case& c : cases()) {
    const bool by_graph = run % 2 == 1, half = run % 3 == 2;
    failed += (half ? run_case<__half>(c, by_graph) : run_case<__nv_bfloat16>(c, by_graph)) ? 0 : 1;
    ++run;
  }
  std::printf("%d cases, %d failed\n", run, failed);
  return failed == 0 && run > 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;
  }
  const std::string mode = count > 1 ? words[1] : "", only = count > 2 ? words[2] : "";
  return mode.empty() ? run_cases() : time_targets(mode, only);
}
