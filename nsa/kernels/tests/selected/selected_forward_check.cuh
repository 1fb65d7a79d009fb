// Correctness and time of the forward pass by tiles of keys, for selected_gpu_test.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nsa/kernels/selected/selected_forward.h"
#include "nsa/kernels/selected/selected_problem.cuh"
#include "nsa/kernels/tests/selected/selected_judge.cuh"

namespace {

/// Of the forward pass.
inline nsa::kernels::WholeTiles whole_tiles = nsa::kernels::WholeTiles::kBySize;

/// Cases of the forward pass whose names do not have it are left out.
inline std::string part_of_name;

/// Results of a run of the forward pass.
template <typename T>
struct Forward {
  Buffer<T> out;
  Buffer<float> lse;

  Forward(const Problem<T>& x, int tiles_of_row, int dense, int garbage)
      : out(x.out.count), lse(x.lse.count) {
    RowAttention f = x.forward();
    f.out = out.data, f.lse = lse.data;
    Buffer<char> workspace(nsa::kernels::workspace_bytes(f, tiles_of_row, dense));
    workspace.fill(garbage);
    out.fill(0xff);
    lse.fill(0xff);
    check(selected_attention_forward(f, tiles_of_row, dense, workspace.data, nullptr, whole_tiles),
          "forward");
    check(cudaDeviceSynchronize(), x.c.name().c_str());
  }
};

/// Rows that are finite in `judge` and have other bits in `a` than in `b`.
template <typename T>
int64_t other_rows(const Forward<T>& a, const Forward<T>& b, const Buffer<T>& judge, int dim) {
  const std::vector<T> out_a = a.out.host(), out_b = b.out.host(), want = judge.host();
  const std::vector<float> lse_a = a.lse.host(), lse_b = b.lse.host();
  int64_t count = 0;
  for (size_t row = 0; row < lse_a.size(); ++row) {
    bool finite = true;
    for (int i = 0; i < dim; ++i) finite &= std::isfinite(static_cast<float>(want[row * dim + i]));
    count += finite && (std::memcmp(&out_a[row * dim], &out_b[row * dim], dim * sizeof(T)) != 0 ||
                        std::memcmp(&lse_a[row], &lse_b[row], sizeof(float)) != 0);
  }
  return count;
}

/// The pass, its first `dense` queries in whole tiles, against the values of x.out and x.lse, and
/// whether two runs give the same bits.
template <typename T>
bool forward_correct(const Problem<T>& x, int dense, double bound, int tiles_of_row = 0) {
  const int tiles = tiles_of_row == 0 ? (x.c.n() + 63) / 64 : tiles_of_row;
  const Forward<T> have(x, tiles, dense, 0xff), again(x, tiles, dense, 0x3f);
  const bool same = same_bits(have.out, again.out) && same_bits(have.lse, again.lse);
  const double error = difference(have.out, x.out).relative(),
               lse_error = difference(have.lse, x.lse).error;
  const bool ok = same && error <= bound && lse_error <= 1e-5;
  std::printf("%s forward %5d dense %.1e lse %.1e%s | ", ok ? "ok  " : "FAIL", dense, error,
              lse_error, same ? "" : " other bits twice");
  return ok;
}

/// The order of rows, a row's work divided among so many warps, against the values of x.out and
/// x.lse.
template <typename T>
bool rows_correct(const Problem<T>& x, double bound, int warps) {
  Buffer<T> out(x.out.count);
  Buffer<float> lse(x.lse.count);
  RowAttention f = x.forward();
  f.out = out.data, f.lse = lse.data;
  out.fill(0xff);
  lse.fill(0xff);
  check(row_attention_forward(f, nullptr, warps), "forward by rows");
  check(cudaDeviceSynchronize(), x.c.name().c_str());
  const double error = difference(out, x.out).relative(), lse_error = difference(lse, x.lse).error;
  const bool ok = error <= bound && lse_error <= 1e-5;
  std::printf("%s by rows, %d warps %.1e lse %.1e | ", ok ? "ok  " : "FAIL", warps, error,
              lse_error);
  return ok;
}

/// Judged by fp64 loops, with several numbers of dense queries. Values that are not finite leave
/// the bits of the rows that do not attend them alone. `tiles_of_row`: 0 for as many as there are.
template <typename T>
bool forward_case(const Case& c, int tiles_of_row = 0) {
  if (c.name().find(part_of_name) == std::string::npos) return true;
  const double bound = std::is_same_v<T, __half> ? 2e-3 : 1.5e-2;
  const int tiles = tiles_of_row == 0 ? (c.n() + 63) / 64 : tiles_of_row;
  Problem<T> x(c, tiles);
  std::vector<int> counts{0};
  if (c.block_size % 64 == 0) counts = {c.s, c.s * 3 / 5, 0};
  std::vector<std::unique_ptr<Forward<T>>> before;
  if (c.bad) {
    for (const int dense : counts)
      before.push_back(std::make_unique<Forward<T>>(x, tiles, dense, 0xff));
    x.spoil();
    x.spoil_values();
  }
  plain_forward<<<(x.query_rows(c) + 3) / 4, 128>>>(x.plain(), x.out.data, x.lse.data,
                                                    x.query_rows(c));
  bool ok = true;
  for (const int warps : {1, 4}) ok &= rows_correct(x, bound, warps);
  for (size_t i = 0; i < counts.size(); ++i) {
    ok &= forward_correct(x, counts[i], bound, tiles);
    if (!c.bad) continue;
    const int64_t others =
        other_rows(*before[i], Forward<T>(x, tiles, counts[i], 0xff), x.out, c.dv);
    ok &= others == 0;
    std::printf("%lld rows with other bits | ", static_cast<long long>(others));
  }
  std::printf("%s %s %s\n", ok ? "ok  " : "FAIL", c.name().c_str(),
              std::is_same_v<T, __half> ? "fp16" : "bf16");
  return ok;
}

/// Ranges that are not the promised blocks: their rows are NaN, nothing else is wrong.
inline bool broken_promise_is_nan() {
  Case c{1, 300, 4, 2, 64, 64, 2};
  Problem<__nv_bfloat16> x(c, 5);
  plain_forward<<<(x.query_rows(c) + 3) / 4, 128>>>(x.plain(), x.out.data, x.lse.data,
                                                    x.query_rows(c));
  x.c.block_size = 64;  // which they are not
  const std::vector<__nv_bfloat16> have = Forward<__nv_bfloat16>(x, 5, c.s, 0xff).out.host(),
                                   want = x.out.host();
  int64_t bad = 0, wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const float h = static_cast<float>(have[i]);
    bad += std::isnan(h);
    wrong += !std::isnan(h) && !(std::abs(h - static_cast<float>(want[i])) <= 2e-2f);
  }
  const bool ok = bad > int64_t(want.size()) / 2 && wrong == 0;
  std::printf("%s ranges that are no blocks: %lld of %zu values NaN, %lld wrong\n",
              ok ? "ok  " : "FAIL", static_cast<long long>(bad), want.size(),
              static_cast<long long>(wrong));
  return ok;
}

inline bool forward_cases_correct(nsa::kernels::WholeTiles way) {
  whole_tiles = way;
  bool ok = broken_promise_is_nan();
  const int dims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
  for (const auto& d : dims) {
    Case blocks{1, 333, 1, 2, d[0], d[1], 4};
    blocks.block_size = 64;
    for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
      blocks.group = group;
      ok &= forward_case<__nv_bfloat16>(blocks);
    }
    ok &= forward_case<__half>(blocks);
    blocks.batch = 2, blocks.s = 171, blocks.group = 6, blocks.first_position = 131;
    ok &= forward_case<__half>(blocks);
    blocks.empty = true;
    ok &= forward_case<__nv_bfloat16>(blocks);
    Case bad{2, 420, 6, 2, d[0], d[1], 3};
    bad.block_size = 64, bad.bad = true;
    ok &= forward_case<__nv_bfloat16>(bad);
    bad.group = 16;
    ok &= forward_case<__half>(bad);
    Case many{1, 1501, 16, 1, d[0], d[1], 6};
    many.block_size = 64;
    ok &= forward_case<__nv_bfloat16>(many);
    many.group = many.kv_heads = 4;  // two parts of a row in a block of 8
    ok &= forward_case<__nv_bfloat16>(many);
    for (const int group : {3, 4, 8}) {  // more tiles of rows than CTAs, some of them redone
      Case redone{1, 1501, group, 48 / group, d[0], d[1], 6};
      redone.block_size = 64, redone.bad = true;
      ok &= forward_case<__half>(redone, group == 8 ? 7 : 6);
    }
    for (const int size : {16, 32, 48}) {  // blocks that are no whole tiles
      Case small{2, 333, 16, 2, d[0], d[1], 5, size == 32 ? 131 : 0};
      small.block_size = size, small.bad = size == 16;
      ok &= forward_case<__nv_bfloat16>(small);
      ok &= forward_case<__half>(small);
    }
    for (const int s : {1, 63, 64, 65}) {
      Case few{1, s, 6, 2, d[0], d[1], 2};
      few.block_size = 64;
      ok &= forward_case<__nv_bfloat16>(few);
    }
  }
  Case last{1, 40, 16, 1, 192, 128, 16, 4096 - 40};  // the highest bit
  last.block_size = 64;
  ok &= forward_case<__half>(last);
  Case stripes{1, 4000, 16, 1, 192, 128, 6};  // 24 MB of Q: two stripes
  stripes.block_size = 64;
  ok &= forward_case<__nv_bfloat16>(stripes, 6);
  return ok;
}

inline bool forward_cases_correct() {
  using nsa::kernels::WholeTiles;
  bool ok = true;
  for (const WholeTiles way : {WholeTiles::kOneOfCta, WholeTiles::kManyOfCta})
    ok &= forward_cases_correct(way);
  whole_tiles = WholeTiles::kBySize;
  return ok;
}

inline double milliseconds(const std::function<void()>& call) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  double total = 0;
  for (int i = 0; i < 23 && (i < 5 || total < 700); ++i) {
    cudaEventRecord(begin);
    call();
    cudaEventRecord(end);
    check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i > 1) times.push_back(ms);
    total += ms;
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Times the order of rows, then the order of keys with several numbers of dense queries, the
/// chosen one marked; results are compared with the order of rows.
inline bool time_forward(const Problem<__nv_bfloat16>& x) {
  const RowAttention f = x.forward();
  const int tiles = std::min(x.c.num_ranges, (x.c.n() + 63) / 64);
  check(row_attention_forward(f, nullptr), "forward by rows");
  double rows_ms[3];
  for (const int warps : {0, 1, 4})
    rows_ms[(warps + 1) / 2] = milliseconds([&] { row_attention_forward(f, nullptr, warps); });
  std::printf("%s forward by rows %.4f ms (a row a warp %.4f, four %.4f) |", x.c.name().c_str(),
              rows_ms[0], rows_ms[1], rows_ms[2]);
  const int chosen = nsa::kernels::dense_queries(f, tiles);
  bool ok = true;
  for (const int dense : {0, 1024, 2048, 3072, 4096}) {
    const int count = std::min(dense, x.c.s);
    if (dense - 1024 >= x.c.s || (dense > 0 && x.c.block_size % 64 != 0)) break;
    std::printf("\n    ");
    ok &= forward_correct(x, count, 1.5e-2, tiles);
    Buffer<char> room(nsa::kernels::workspace_bytes(f, tiles, count));
    room.fill(0xff);
    std::printf("%7.4f ms%s", milliseconds([&] {
                  selected_attention_forward(f, tiles, count, room.data, nullptr);
                }),
                !nsa::kernels::prefer_by_keys(f, tiles) ? " rows chosen"
                : count == chosen                       ? " chosen"
                                                        : "");
  }
  std::printf("\n");
  std::fflush(stdout);
  return ok;
}

}  // namespace
