// Figures of the decode step, for decode_attention_gpu_test.
#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "nsa/kernels/decode/decode_problem.cuh"

namespace {

std::vector<Case> targets() {
  std::vector<Case> all;
  const auto add = [&](const char* name, int batch, int length, int group, int kv_heads, int dk,
                       int dv) {
    Case c;
    c.name = name;
    c.lengths.assign(batch, length);
    c.group = group, c.kv_heads = kv_heads, c.dk = dk, c.dv = dv;
    c.capacity = length + 4096;
    all.push_back(c);
  };
  // As many tokens in all as the last case has, a sequence from an eighth to fifteen eighths.
  const auto add_mixed = [&] {
    Case c = all.back();
    const std::string name = c.name;
    const int length = c.lengths[0], last = c.batch() - 1;
    for (int b = 0; b <= last; ++b)
      c.lengths[b] = length / 8 + static_cast<int>(int64_t{length} * 7 / 4 * b / last);
    c.capacity = length * 15 / 8 + 4096;
    for (const bool longest_first : {false, true}) {
      c.name = name + (longest_first ? "_longest_first" : "_mixed"),
      c.longest_first = longest_first;
      all.push_back(c);
    }
  };
  add("64k_B1", 1, 65536, 16, 4, 192, 128);
  add("64k_B32", 32, 65536, 16, 4, 192, 128);
  add_mixed();
  add("8k_B256", 256, 8192, 16, 4, 192, 128);
  add_mixed();
  add("m7c_2k_B1", 1, 2048, 6, 2, 64, 64);
  add("8k_B1", 1, 8192, 16, 4, 192, 128);
  add("8k_B8", 8, 8192, 16, 4, 192, 128);
  add("64k_B4", 4, 65536, 16, 4, 192, 128);
  add("8k_B32", 32, 8192, 16, 4, 192, 128);
  add_mixed();
  add("m7c_2k_B64", 64, 2048, 6, 2, 64, 64);
  for (const int tokens : {2, 4, 8}) {
    const std::string of = "_x" + std::to_string(tokens);
    add("64k_B1", 1, 65536, 16, 4, 192, 128);
    all.back().name += of, all.back().tokens = tokens;
    add("8k_B8", 8, 8192, 16, 4, 192, 128);
    all.back().name += of, all.back().tokens = tokens;
    add("m7c_2k_B1", 1, 2048, 6, 2, 64, 64);
    all.back().name += of, all.back().tokens = tokens;
  }
  return all;
}

/// Median ms of one launch: alone, as a graph of one, and of a graph of twenty (divided by 20).
template <typename T>
void measure(World<T>& w, const char* label) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event");
  DecodeAttention p = w.problem(/*details=*/false);
  p.block_idx = nullptr;
  if (const char* reason = nsa::kernels::unsupported_reason(p)) {
    std::printf("%-22s %-8s %s\n", w.c.name.c_str(), label, reason);
    return;
  }
  const auto median = [&](const std::function<void()>& work, int times) {
    std::vector<float> ms;
    for (int i = 0; i < times + 3; ++i) {
      check(cudaEventRecord(begin, stream), "event");
      work();
      check(cudaEventRecord(end, stream), "event");
      check(cudaEventSynchronize(end), "step");
      float one = 0;
      check(cudaEventElapsedTime(&one, begin, end), "event");
      if (i >= 3) ms.push_back(one);
    }
    std::nth_element(ms.begin(), ms.begin() + ms.size() / 2, ms.end());
    return ms[ms.size() / 2];
  };
  const auto graph_of = [&](int launches) {
    cudaGraph_t captured;
    cudaGraphExec_t graph;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < launches; ++i) check(nsa::kernels::decode_attention(p, stream), "step");
    check(cudaStreamEndCapture(stream, &captured), "capture");
    check(cudaGraphInstantiate(&graph, captured, 0), "graph");
    check(cudaGraphDestroy(captured), "graph");
    return graph;
  };
  w.reset();
  const float alone = median([&] { check(nsa::kernels::decode_attention(p, stream), "step"); }, 40);
  cudaGraphExec_t one = graph_of(1), twenty = graph_of(20);
  w.reset();
  const float by_graph = median([&] { check(cudaGraphLaunch(one, stream), "graph"); }, 60);
  w.reset();
  const float in_row = median([&] { check(cudaGraphLaunch(twenty, stream), "graph"); }, 20) / 20;
  const std::vector<int64_t> reads = w.reads.host();
  double bytes = 0;
  for (int64_t count : reads) bytes += double(count) * (w.c.dk + w.c.dv) * sizeof(T);
  std::printf("%-22s %-8s launch %.4f  graph of 1 %.4f  of 20 %.4f ms; %.1f MB, %.2f TB/s\n",
              w.c.name.c_str(), label, alone, by_graph, in_row, bytes * 1e-6,
              bytes * 1e-9 / in_row);
  std::fflush(stdout);
  check(cudaGraphExecDestroy(one), "graph"), check(cudaGraphExecDestroy(twenty), "graph");
  check(cudaEventDestroy(begin), "event"), check(cudaEventDestroy(end), "event");
  check(cudaStreamDestroy(stream), "stream");
}

int time_targets(const std::string& mode, const std::string& only) {
  for (const Case& c : targets()) {
    if (!only.empty() && only.find(c.name) == std::string::npos) continue;
    World<__nv_bfloat16> w(c);
    w.draw_token();
    check(cudaDeviceSynchronize(), "caches");
    if (mode == "--once") {
      check(nsa::kernels::decode_attention(w.problem(false), nullptr), "step");
      check(cudaDeviceSynchronize(), "step");
      continue;
    }
    measure(w, "chosen");
    if (mode != "--sweep") continue;
    for (int ranks = 1; ranks <= 16; ranks *= 2)
      for (int warps : {4, 6, 8}) {
        w.c.ranks = ranks, w.c.warps = warps;
        measure(w, (std::to_string(ranks) + "x" + std::to_string(warps)).c_str());
      }
  }
  return 0;
}

}  // namespace
