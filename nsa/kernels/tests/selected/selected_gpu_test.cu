// Selected attention in the order of keys, both passes, against plain fp64 loops on the same
// device. No LibTorch.
//   selected_gpu_test          correctness; ends with 77 where there is no CUDA device
//   selected_gpu_test --time   figures, each with a check of sampled rows and keys;
//   with it: --short small ones only; --sm80 backward by code of sm_80; --blocks instead of that
//   the forward pass in both orders with blocks of 16 and 32 tokens
//   selected_gpu_test --once   a single pass of each for a profiler
//   with any: --forward that pass only; --only TEXT its cases whose names have it
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "nsa/kernels/selected/selected_backward.h"
#include "nsa/kernels/selected/selected_problem.cuh"
#include "nsa/kernels/tests/selected/selected_forward_check.cuh"
#include "nsa/kernels/tests/selected/selected_judge.cuh"

namespace {

struct Distances {
  double q, k, v;
  bool within(double bound) const { return q <= bound && k <= bound && v <= bound; }
};

template <typename T>
Distances compare(const Problem<T>& x, int row_stride, int key_stride) {
  const Case& c = x.c;
  const int64_t rows = x.query_rows(c), keys = x.key_rows(c);
  const int64_t q_count = (rows + row_stride - 1) / row_stride,
                k_count = (keys + key_stride - 1) / key_stride;
  Buffer<double> d_q(q_count * c.dk), d_k(k_count * c.dk), d_v(k_count * c.dv);
  plain_queries<<<(q_count + 3) / 4, 128>>>(x.plain(), d_q.data, rows, row_stride);
  plain_keys<<<(k_count + 3) / 4, 128>>>(x.plain(), d_k.data, d_v.data, keys, key_stride);
  check(cudaDeviceSynchronize(), "reference");
  return {difference(x.d_q, d_q, c.dk, row_stride).relative(),
          difference(x.d_k, d_k, c.dk, key_stride).relative(),
          difference(x.d_v, d_v, c.dv, key_stride).relative()};
}

/// `dense`: queries of the backward pass in whole tiles.
template <typename T>
bool correct(const Case& c, int dense = 0, Code code = Code::kSm90) {
  const bool sm80 = code == Code::kSm80;
  Problem<T> x(c, (c.n() + 63) / 64);
  x.p.dense = dense;
  x.p.code = code;
  if (c.bad) x.spoil();
  plain_forward<<<(x.query_rows(c) + 3) / 4, 128>>>(x.plain(), x.out.data, x.lse.data,
                                                    x.query_rows(c));
  Buffer<char> workspace(nsa::kernels::workspace_bytes(x.p));
  Buffer<T> first[3] = {Buffer<T>(x.d_q.count), Buffer<T>(x.d_k.count), Buffer<T>(x.d_v.count)};
  bool same = true;
  for (int repeat = 0; repeat < 3; ++repeat) {
    workspace.fill(repeat == 1 ? 0x3f : 0xff);
    for (Buffer<T>* y : {&x.d_q, &x.d_k, &x.d_v}) y->fill(0xff);
    x.run(workspace.data);
    check(cudaDeviceSynchronize(), c.name().c_str());
    const Buffer<T>* have[3] = {&x.d_q, &x.d_k, &x.d_v};
    for (int i = 0; i < 3; ++i) {
      if (repeat == 0) first[i].copy(*have[i]);
      same = same && same_bits(first[i], *have[i]);
    }
  }
  const Distances d = compare(x, 1, 1);
  const double bound = std::is_same_v<T, __half> ? 2e-3 : 1.5e-2;
  const bool ok = (c.group > 16 || dense > 0 || sm80 || forward_correct(x, 0, bound)) && same &&
                  d.within(bound);
  std::printf("%s %-44s %s %4d dense%s d_q %.1e d_k %.1e d_v %.1e%s\n", ok ? "ok  " : "FAIL",
              c.name().c_str(), std::is_same_v<T, __half> ? "fp16" : "bf16", dense,
              sm80 ? ", sm_80," : "", d.q, d.k, d.v, same ? "" : " other bits twice");
  return ok;
}

/// All queries, three fifths and the first ones in whole tiles.
template <typename T>
bool dense_correct(const Case& c) {
  bool ok = true;
  for (const int dense : {c.s, c.s * 3 / 5, 1}) ok &= correct<T>(c, std::max(dense, 1));
  return ok;
}

/// Ranges that are not the promised blocks: d_q of their rows is NaN, of the others right.
bool broken_promise_is_nan_backward() {
  Case c{1, 300, 4, 2, 64, 64, 2};
  Problem<__nv_bfloat16> x(c, 5);
  plain_forward<<<(x.query_rows(c) + 3) / 4, 128>>>(x.plain(), x.out.data, x.lse.data,
                                                    x.query_rows(c));
  x.p.block_size = 64;  // which they are not
  x.p.dense = c.s;
  Buffer<char> workspace(nsa::kernels::workspace_bytes(x.p));
  workspace.fill(0xff);
  x.run(workspace.data);
  Buffer<double> d_q(x.query_rows(c) * c.dk);
  plain_queries<<<(x.query_rows(c) + 3) / 4, 128>>>(x.plain(), d_q.data, x.query_rows(c), 1);
  const std::vector<__nv_bfloat16> have = x.d_q.host();
  const std::vector<double> want = d_q.host();
  int64_t bad = 0, wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const float h = static_cast<float>(have[i]);
    bad += std::isnan(h);
    wrong += !std::isnan(h) && !(std::abs(h - want[i]) <= 2e-2);
  }
  const bool ok = bad > int64_t(want.size()) / 2 && wrong == 0;
  std::printf("%s backward, ranges that are no blocks: %lld of %zu values NaN, %lld wrong\n",
              ok ? "ok  " : "FAIL", static_cast<long long>(bad), want.size(),
              static_cast<long long>(wrong));
  return ok;
}

bool dense_cases_correct() {
  bool ok = broken_promise_is_nan_backward();
  const int dims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
  for (const auto& d : dims) {
    Case blocks{1, 333, 1, 2, d[0], d[1], 4};
    blocks.block_size = 64;
    for (const int group : {1, 3, 6, 12, 16, 64}) {
      blocks.group = group;
      ok &= dense_correct<__nv_bfloat16>(blocks);
    }
    blocks.group = 5;
    ok &= dense_correct<__half>(blocks);
    blocks.batch = 2, blocks.s = 171, blocks.group = 6, blocks.first_position = 131;
    blocks.with_d_lse = true;
    ok &= dense_correct<__half>(blocks);
    blocks.empty = true;
    ok &= dense_correct<__nv_bfloat16>(blocks);
    Case bad{2, 420, 6, 2, d[0], d[1], 3};
    bad.block_size = 64, bad.bad = true;
    ok &= dense_correct<__nv_bfloat16>(bad);
    bad.group = 16;
    ok &= dense_correct<__half>(bad);
    Case many{1, 1501, 16, 1, d[0], d[1], 6};
    many.block_size = 64;
    ok &= dense_correct<__nv_bfloat16>(many);
    for (const int s : {1, 63, 64, 65}) {
      Case few{1, s, 6, 2, d[0], d[1], 2};
      few.block_size = 64;
      ok &= dense_correct<__nv_bfloat16>(few);
    }
  }
  Case last{1, 40, 16, 1, 192, 128, 16, 63 * 64 - 40};  // the highest bit
  last.block_size = 64;
  return dense_correct<__half>(last) && ok;
}

/// Without whole tiles.
bool key_cases_correct(Code code) {
  bool ok = true;
  const int dims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
  for (const auto& d : dims)
    for (const int group : {1, 2, 3, 6, 12, 16}) {
      const Case any{2, 171, group, 2, d[0], d[1], 3};
      Case blocks{1, 333, group, 2, d[0], d[1], 4};
      blocks.block_size = 64;
      ok &= correct<__nv_bfloat16>(any, 0, code);
      ok &= correct<__half>(blocks, 0, code);
    }
  Case later{2, 70, 4, 1, 128, 128, 5, 131};
  later.with_d_lse = true;
  ok &= correct<__nv_bfloat16>(later, 0, code);
  ok &= correct<__half>(later, 0, code);
  for (const int s : {1, 63, 64, 65})
    ok &= correct<__nv_bfloat16>({1, s, 6, 2, 64, 64, 2}, 0, code);
  Case bad{2, 300, 4, 2, 128, 128, 3};
  bad.bad = true;
  ok &= correct<__nv_bfloat16>(bad, 0, code);
  bad.block_size = 64;
  ok &= correct<__half>(bad, 0, code);
  return correct<__nv_bfloat16>({1, 70, 32, 1, 64, 64, 32}, 0, code) && ok;
}

bool all_correct() {
  bool ok = dense_cases_correct();
  for (const Code code : {Code::kSm90, Code::kSm80}) ok &= key_cases_correct(code);
  return forward_cases_correct() && ok;
}

/// With several numbers of queries in whole tiles, the chosen one marked.
bool time_backward(Problem<__nv_bfloat16>& x, int top_n) {
  const Case& c = x.c;
  const int64_t rows = x.query_rows(c), keys = x.key_rows(c);
  double pairs = 0;
  for (int t = 0; t < c.s; ++t) pairs += std::min(top_n, t / 64 + 1);
  const double flop = pairs * c.batch * c.heads() * 64 * 2 * (3 * c.dk + 2 * c.dv);
  const double tensors = 2.0 * (rows + keys) * (c.dk + c.dv);
  const int chosen = nsa::kernels::dense_queries(x.p);
  std::printf("%s backward", c.name().c_str());
  bool ok = true;
  for (const int dense : {0, 768, 1024, 1280, 1536, 2048, 2560}) {
    if (dense > c.s || (dense > 0 && x.p.code == Code::kSm80)) break;
    x.p.dense = dense;
    const size_t bytes = nsa::kernels::workspace_bytes(x.p);
    Buffer<char> workspace(bytes);
    workspace.fill(0xff);
    x.run(workspace.data);
    const Distances d =
        compare(x, std::max<int64_t>(1, rows / 3001), std::max<int64_t>(1, keys / 211));
    const double ms = milliseconds([&] { x.run(workspace.data); });
    std::printf(
        "\n    %s %4d dense %8.4f ms %5.0f TFLOP/s, workspace %.0f MB (%.2f) "
        "d_q %.1e d_k %.1e d_v %.1e%s",
        d.within(1.5e-2) ? "ok  " : "FAIL", dense, ms, flop / ms * 1e-9, bytes / 1e6,
        bytes / tensors, d.q, d.k, d.v, dense == chosen ? " chosen" : "");
    ok &= d.within(1.5e-2);
  }
  std::printf(" (chosen: %d)\n", chosen);
  std::fflush(stdout);
  return ok;
}

bool time_case(Case c, int top_n, bool once, bool forward_only, Code code) {
  c.num_ranges = top_n;
  if (c.block_size == 0) c.block_size = 64;
  Problem<__nv_bfloat16> x(c, top_n);
  if (forward_only) return time_forward(x);
  x.p.code = code;
  x.p.dense = nsa::kernels::dense_queries(x.p);
  const size_t bytes = nsa::kernels::workspace_bytes(x.p);
  Buffer<char> workspace(bytes);
  workspace.fill(0xff);
  check(nsa::kernels::row_attention_forward(x.forward(), nullptr), "forward");
  x.run(workspace.data);
  if (once) {
    const int dense = nsa::kernels::dense_queries(x.forward(), top_n);
    Buffer<char> room(nsa::kernels::workspace_bytes(x.forward(), top_n, dense));
    check(selected_attention_forward(x.forward(), top_n, dense, room.data, nullptr), "forward");
    return cudaDeviceSynchronize() == cudaSuccess;
  }
  const bool ok = time_backward(x, top_n);
  return time_forward(x) && ok;
}

/// Both orders of the forward pass where blocks are smaller than a tile.
bool time_small_blocks() {
  bool ok = true;
  const int dims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
  for (const auto& d : dims)
    for (const int group : {1, 2, 4, 8, 16})
      for (const int block_size : {16, 32})
        for (const int s : {512, 2048, 8192}) {
          Case c{1, s, group, 32 / group, d[0], d[1], 16};
          c.block_size = block_size;
          if (c.name().find(part_of_name) != std::string::npos)
            ok &= time_case(c, 16, /*once=*/false, /*forward_only=*/true, Code::kSm90);
        }
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  const auto asked = [&](const char* flag) {
    return std::any_of(argv + 1, argv + argc, [&](char* x) { return std::strcmp(x, flag) == 0; });
  };
  const bool once = asked("--once");
  const auto only =
      std::find_if(argv + 1, argv + argc, [](char* x) { return std::strcmp(x, "--only") == 0; });
  if (argv + argc - only > 1) part_of_name = only[1];
  if (!asked("--time") && !once) {
    const bool ok = asked("--forward") ? forward_cases_correct() : all_correct();
    std::puts(ok ? "all correct" : "FAILED");
    return ok ? 0 : 1;
  }
  const Case cases[] = {{1, 2048, 16, 4, 192, 128, 16},  {1, 8192, 16, 4, 192, 128, 16},
                        {8, 2048, 6, 2, 64, 64, 16},     {1, 512, 6, 2, 64, 64, 16},
                        {1, 1024, 6, 2, 64, 64, 16},     {1, 2048, 6, 2, 64, 64, 16},
                        {1, 1024, 16, 4, 192, 128, 16},  {1, 32768, 16, 4, 192, 128, 16},
                        {1, 65536, 16, 4, 192, 128, 16}, {1, 32768, 4, 16, 128, 128, 16},
                        {1, 32768, 1, 64, 128, 128, 16}, {1, 8192, 6, 2, 64, 64, 16},
                        {4, 8192, 6, 2, 64, 64, 16},     {1, 4096, 16, 4, 192, 128, 16},
                        {1, 4096, 6, 2, 64, 64, 16}};
  bool ok = true;
  if (asked("--blocks")) return time_small_blocks() ? 0 : 1;
  for (const Case& c : cases)
    if ((!asked("--short") || c.s < 10000) && c.name().find(part_of_name) != std::string::npos)
      ok &= time_case(c, 16, once, asked("--forward"), asked("--sm80") ? Code::kSm80 : Code::kSm90);
  return ok ? 0 : 1;
}
