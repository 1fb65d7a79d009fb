// Problems of interval attention as data, and the host's part of the judge of what a launch left:
// for kernels on a GPU and for emulated ones.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels::testing {

inline int failures = 0;

struct Choice {
  int block = 0, n = 0, initial = 0, local = 0;  // block = 0: none
};
/// kRising: later keys weigh more; kEqual: keys are 0; kComb: four of every 128 keys weigh more;
/// kTwoLevels: four of every eight keys weigh more, all alike.
enum class Data { kRandom, kRising, kEqual, kComb, kTwoLevels };

struct Sizes {
  const char* name;
  int batch, queries, keys, kv_heads, group, dk, dv, first_position;
  IntervalRule rule;
  Choice choice;
  bool half;
  Data data = Data::kRandom;
};

/// Half-open span of keys of a position, by the rule.
inline __host__ __device__ void keys_of(const IntervalRule& rule, int position, int num_keys,
                                        int& begin, int& end) {
  begin = position - rule.window + 1 > 0 ? position - rule.window + 1 : 0;
  const int visible =
      position + 1 < rule.extent ? 0 : (position + 1 - rule.extent) / rule.stride + 1;
  end = visible < num_keys ? visible : num_keys;
}

inline float value_of(const std::vector<uint16_t>& x, int64_t i, bool half) {
  if (half) {
    __half_raw raw;
    raw.x = x[i];
    return __half2float(raw);
  }
  const uint32_t bits = uint32_t(x[i]) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline IntervalRule window(int w) { return {1, 1, w}; }
inline IntervalRule compressed(int extent, int stride) {
  return {extent, stride, IntervalRule::kEverything};
}

/// What a launch leaves.
struct Results {
  std::vector<uint16_t> out;
  std::vector<uint32_t> lse;
  std::vector<int32_t> ids, ranges;
};
inline void title(const Sizes& z) {
  std::printf("%s B%d S%d N%d heads %dx%d %d/%d window %d stride %d first %d n %d %s\n", z.name,
              z.batch, z.queries, z.keys, z.kv_heads, z.group, z.dk, z.dv, z.rule.window,
              z.rule.stride, z.first_position, z.choice.n, z.half ? "fp16" : "bf16");
}

inline void report(bool good, const char* what, double error, const std::string& detail = "") {
  if (!good) ++failures;
  std::printf("  %s %s %.2e %s\n", good ? "ok  " : "FAIL", what, error, detail.c_str());
}

/// Blocks by score descending, equal ones by index, NaN below every number; then ascending.
inline std::vector<int> best_blocks(const double* scores, const Choice& choice, int current) {
  std::vector<int> ids, free;
  const auto value = [&](int j) { return std::isnan(scores[j]) ? -1. : scores[j]; };
  if (current + 1 <= choice.n) {
    for (int j = 0; j <= current; ++j) ids.push_back(j);
    return ids;
  }
  for (int j = 0; j < choice.initial; ++j) ids.push_back(j);
  for (int j = choice.initial; j <= current - choice.local; ++j) free.push_back(j);
  std::stable_sort(free.begin(), free.end(), [&](int a, int b) { return value(a) > value(b); });
  ids.insert(ids.end(), free.begin(), free.begin() + choice.n - choice.initial - choice.local);
  for (int j = current - choice.local + 1; j <= current; ++j) ids.push_back(j);
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Whether `ids` are as good as the best ones: equal, or different only in blocks whose scores fp32
/// cannot distinguish. Counts the equal ones in `same`.
inline bool good_choice(const int32_t* ids, const double* scores, const Choice& choice, int current,
                        int64_t& same) {
  std::vector<int> want = best_blocks(scores, choice, current), have;
  for (int i = 0; i < choice.n && ids[i] >= 0; ++i) have.push_back(ids[i]);
  for (int i = int(have.size()); i < choice.n; ++i)
    if (ids[i] != -1) return false;
  if (have == want) {
    ++same;
    return true;
  }
  if (have.size() != want.size() || !std::is_sorted(have.begin(), have.end())) return false;
  const auto outside = [](const std::vector<int>& x, const std::vector<int>& y) {
    std::vector<int> only;
    std::set_difference(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(only));
    return only;
  };
  for (const int wrong : outside(have, want))
    for (const int missing : outside(want, have)) {
      if (wrong < choice.initial || wrong > current - choice.local) return false;
      if (!(scores[wrong] >= scores[missing] * (1 - 2e-5))) return false;
    }
  return std::adjacent_find(have.begin(), have.end()) == have.end();
}

inline bool good_ranges(const int32_t* ranges, const int32_t* ids, const Choice& choice,
                        int position) {
  std::vector<int32_t> want(2 * choice.n, 0);
  int count = 0;
  for (int i = 0; i < choice.n && ids[i] >= 0; ++i) {
    if (i == 0 || ids[i] != ids[i - 1] + 1) want[2 * count++] = ids[i] * choice.block;
    want[2 * count - 1] = std::min((ids[i] + 1) * choice.block, position + 1);
  }
  return std::equal(want.begin(), want.end(), ranges);
}

inline void compare_blocks(const Sizes& z, const Results& r, const std::vector<double>& scores,
                           int blocks, int64_t samples, int64_t step) {
  int64_t same = 0, bad = 0, bad_ranges = 0, where = -1;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t token = i * step;
    const int position = z.first_position + int(token / z.kv_heads % z.queries);
    const int32_t* ids = r.ids.data() + token * z.choice.n;
    if (!good_choice(ids, scores.data() + i * blocks, z.choice, position / z.choice.block, same))
      ++bad, where = token;
    bad_ranges += !good_ranges(r.ranges.data() + token * z.choice.n * 2, ids, z.choice, position);
  }
  const bool exact = z.data == Data::kEqual;
  report(samples > 0 && bad == 0 && (exact ? same == samples : same * 100 >= samples * 99),
         "blocks", double(bad),
         "of " + std::to_string(samples) + ", the same as fp64's: " + std::to_string(same) +
             ", wrong at " + std::to_string(where));
  report(bad_ranges == 0, "ranges", double(bad_ranges));
}

inline void compare_rows(const Sizes& z, const Results& r, const std::vector<double>& out,
                         const std::vector<double>& lse, int64_t step) {
  double largest = 0, error = 0, lse_error = 0;
  int64_t wrong_class = 0, finite = 0;
  for (size_t i = 0; i < lse.size(); ++i) {
    const int64_t row = int64_t(i / z.group) * step * z.group + int64_t(i % z.group);
    float have_lse;
    std::memcpy(&have_lse, &r.lse[row], 4);
    if (std::isinf(lse[i]) || std::isnan(lse[i]))
      wrong_class += std::isnan(lse[i]) ? !std::isnan(have_lse) : have_lse != float(lse[i]);
    else if (!std::isfinite(have_lse))
      ++wrong_class;
    else
      lse_error = std::max(lse_error, std::fabs(have_lse - lse[i]));
    for (int c = 0; c < z.dv; ++c) {
      const double want = out[i * z.dv + c], have = value_of(r.out, row * z.dv + c, z.half);
      if (std::isfinite(want) != std::isfinite(have)) ++wrong_class;
      if (!std::isfinite(want) || !std::isfinite(have)) continue;
      ++finite;
      largest = std::max(largest, std::fabs(want));
      error = std::max(error, std::fabs(want - have));
    }
  }
  const double bound = z.half ? 1e-3 : 8e-3, relative = largest > 0 ? error / largest : error;
  report(finite > 0 && relative <= bound && wrong_class == 0, "out", relative,
         wrong_class ? "finite where it must not be, or not" : "");
  report(lse_error <= 1e-4, "lse", lse_error);
}

}  // namespace nsa::kernels::testing
