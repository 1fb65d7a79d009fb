// What a launch of interval attention left, judged by loops in fp64 over the same numbers.
#pragma once
#include <cmath>
#include <iterator>
#include <string>

#include "nsa/device/interval_problem.cuh"

namespace nsa::device::testing {

/// Sample i is token (batch, query, KV head) i * step; a block of 128 threads each. Output rows
/// [group][dv], lse [group] and block scores [blocks], all of them plain sums.
inline __global__ void reference_kernel(Sizes z, const void* q, const void* k, const void* v,
                                        int64_t step, int blocks, double* out, double* lse,
                                        double* scores) {
  extern __shared__ double shared[];
  double *weights = shared, *sums = shared + z.keys;
  const int64_t token = blockIdx.x * step;
  const int kv_head = token % z.kv_heads, query = token / z.kv_heads % z.queries,
            batch = token / z.kv_heads / z.queries;
  int begin, end;
  keys_of(z.rule, z.first_position + query, z.keys, begin, end);
  const auto key_row = [&](int key) {
    return (int64_t(batch) * z.keys + key) * z.kv_heads + kv_head;
  };
  for (int key = threadIdx.x; key < z.keys; key += 128) sums[key] = 0;
  for (int h = 0; h < z.group; ++h) {
    const int64_t row = token * z.group + h;
    double part = 0;
    for (int key = begin + threadIdx.x; key < end; key += 128) {
      weights[key] =
          exp(dot(q, row * z.dk, k, key_row(key) * z.dk, z.dk, z.half) / sqrt(double(z.dk)));
      part += weights[key];
    }
    const double sum = sum_of_block(part);
    for (int key = begin + threadIdx.x; key < end; key += 128) sums[key] += weights[key] / sum;
    const int64_t place = int64_t(blockIdx.x) * z.group + h;
    for (int c = threadIdx.x; c < z.dv; c += 128) {
      double total = 0;
      for (int key = begin; key < end; ++key)
        total += weights[key] * number(v, key_row(key) * z.dv + c, z.half);
      out[place * z.dv + c] = end > begin ? total / sum : 0;
    }
    if (threadIdx.x == 0) lse[place] = end > begin ? log(sum) : -INFINITY;
    __syncthreads();
  }
  if (blocks == 0) return;
  const int strides = z.choice.block / z.rule.stride, overlap = z.rule.extent / z.rule.stride - 1;
  for (int j = threadIdx.x; j < blocks; j += 128) {
    double total = 0;
    for (int i = max(0, j * strides - overlap); i < min(end, (j + 1) * strides); ++i)
      total += (min(i + overlap + 1, (j + 1) * strides) - max(i, j * strides)) * sums[i];
    scores[int64_t(blockIdx.x) * blocks + j] = total;
  }
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

/// Whether `ids` are as good as the best ones: the same, or apart only in blocks whose scores fp32
/// cannot tell from each other. Counts the former.
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

/// Compares every `step`-th token with fp64.
inline void compare(Case& c, const Results& r, int64_t step) {
  const Sizes& z = c.z;
  const int64_t samples = (c.tokens + step - 1) / step;
  const int blocks =
      z.choice.block > 0 ? (z.first_position + z.queries + z.choice.block - 1) / z.choice.block : 0;
  Buffer out(samples * z.group * z.dv * 8), lse(samples * z.group * 8),
      scores(samples * blocks * 8);
  check(cudaFuncSetAttribute(reference_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             200 * 1024),
        "attribute");
  // A window's keys begin anywhere, so there is a place for every key.
  reference_kernel<<<unsigned(samples), 128, size_t(z.keys) * 16>>>(
      z, c.q.data, c.k.data, c.v.data, step, blocks, static_cast<double*>(out.data),
      static_cast<double*>(lse.data), static_cast<double*>(scores.data));
  check(cudaGetLastError(), "reference");
  check(cudaDeviceSynchronize(), "reference");
  compare_rows(z, r, read_as<double>(out), read_as<double>(lse), step);
  if (blocks > 0) compare_blocks(z, r, read_as<double>(scores), blocks, samples, step);
}

/// Tokens of `r` for which `counts(batch, position)` holds have the bits they have in `s`.
template <class Counts>
void compare_bits(const Case& c, const Results& r, const Results& s, const char* what,
                  const Counts& counts) {
  const Sizes& z = c.z;
  int64_t wrong = 0, compared = 0;
  const auto differ = [](const auto& x, const auto& y, int64_t token, int64_t width) {
    return !std::equal(x.begin() + token * width, x.begin() + (token + 1) * width,
                       y.begin() + token * width);
  };
  for (int64_t token = 0; token < c.tokens; ++token) {
    if (!counts(int(token / z.kv_heads / z.queries), int(token / z.kv_heads % z.queries))) continue;
    ++compared;
    wrong += differ(r.out, s.out, token, int64_t(z.group) * z.dv) ||
             differ(r.lse, s.lse, token, z.group) || differ(r.ids, s.ids, token, z.choice.n) ||
             differ(r.ranges, s.ranges, token, 2 * z.choice.n);
  }
  report(compared > 0 && wrong == 0, what, double(wrong), "of " + std::to_string(compared));
}

}  // namespace nsa::device::testing
