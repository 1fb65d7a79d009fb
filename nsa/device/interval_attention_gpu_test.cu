// Interval attention, forward, and the choice of blocks against fp64 loops, without LibTorch. With
// arguments "time [NAME]" the sizes of the targets whose name begins so are checked by samples and
// timed instead; "once [NAME]" does one pass of each, for a profiler.
#include <cmath>
#include <iterator>
#include <string>

#include "nsa/device/interval_gpu_testing.cuh"

namespace nsa::device {
namespace {

using namespace testing;

struct Choice {
  int block = 0, n = 0, initial = 0, local = 0;  // block = 0: none
};
enum class Data { kRandom, kRising, kEqual };  // kRising: later keys weigh more; kEqual: keys are 0

struct Sizes {
  const char* name;
  int batch, queries, keys, kv_heads, group, dk, dv, first_position;
  IntervalRule rule;
  Choice choice;
  bool half;
  Data data = Data::kRandom;
};

__global__ void tilt_kernel(void* data, int64_t count, int width, int tokens, bool half, float base,
                            float slope) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const float value =
        float(number(data, i, half)) + base + slope * float(i / width % tokens) / float(tokens);
    if (half)
      static_cast<__half*>(data)[i] = __float2half(value);
    else
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(value);
  }
}

struct Case {
  explicit Case(const Sizes& z)
      : z(z),
        tokens(int64_t(z.batch) * z.queries * z.kv_heads),
        q(tokens * z.group * z.dk * 2),
        k(int64_t(z.batch) * z.keys * z.kv_heads * z.dk * 2),
        v(int64_t(z.batch) * z.keys * z.kv_heads * z.dv * 2),
        out(tokens * z.group * z.dv * 2),
        lse(tokens * z.group * 4),
        ids(tokens * z.choice.n * 4),
        ranges(tokens * z.choice.n * 8) {
    draw_kernel<<<1024, 256>>>(q.data, int64_t(q.bytes / 2), z.half, 1, 1.5f);
    draw_kernel<<<1024, 256>>>(k.data, int64_t(k.bytes / 2), z.half, 2, 1.f);
    draw_kernel<<<1024, 256>>>(v.data, int64_t(v.bytes / 2), z.half, 3, 1.f);
    if (z.data == Data::kEqual) k.fill(0);
    if (z.data == Data::kRising) {
      tilt_kernel<<<1024, 256>>>(q.data, int64_t(q.bytes / 2), 1, 1, z.half, .4f, 0.f);
      tilt_kernel<<<1024, 256>>>(k.data, int64_t(k.bytes / 2), z.kv_heads * z.dk, z.keys, z.half,
                                 0.f, .8f);
    }
    const int heads = z.kv_heads * z.group;
    p.q = dense(q, z.queries, heads, z.dk), p.k = dense(k, z.keys, z.kv_heads, z.dk);
    p.v = dense(v, z.keys, z.kv_heads, z.dv), p.out = out.data;
    p.lse = static_cast<float*>(lse.data);
    p.batch = z.batch, p.num_queries = z.queries, p.num_keys = z.keys, p.num_heads = heads;
    p.num_kv_heads = z.kv_heads, p.qk_head_dim = z.dk, p.v_head_dim = z.dv;
    p.first_position = z.first_position, p.rule = z.rule;
    p.scale = 1.f / std::sqrt(float(z.dk));
    p.element = z.half ? Element::kHalf : Element::kBFloat16;
    if (z.choice.block > 0)
      p.selection = {static_cast<int32_t*>(ids.data),
                     static_cast<int32_t*>(ranges.data),
                     z.choice.block,
                     z.choice.n,
                     z.choice.initial,
                     z.choice.local};
  }
  void forward() { check(interval_attention_forward(p, nullptr), "forward"); }
  /// NaN in `count` tokens of q, k or v.
  void poison(Buffer& b, int first, int count, int width) {
    check(cudaMemset(static_cast<char*>(b.data) + int64_t(first) * width * 2, 0xff,
                     int64_t(count) * width * 2),
          "poison");
  }
  Sizes z;
  int64_t tokens;  // (batch, query, KV head)
  Buffer q, k, v, out, lse, ids, ranges;
  IntervalAttention p;
};

template <typename X>
std::vector<X> read_as(const Buffer& b) {
  std::vector<X> host(b.bytes / sizeof(X));
  check(cudaMemcpy(host.data(), b.data, b.bytes, cudaMemcpyDeviceToHost), "read");
  return host;
}

/// What a launch leaves.
struct Results {
  std::vector<uint16_t> out;
  std::vector<uint32_t> lse;
  std::vector<int32_t> ids, ranges;
};
Results results_of(Case& c) {
  for (Buffer* b : {&c.out, &c.lse, &c.ids, &c.ranges}) b->fill(0x7b);
  c.forward();
  check(cudaDeviceSynchronize(), "kernel");
  return {read(c.out), read_as<uint32_t>(c.lse), read_as<int32_t>(c.ids),
          read_as<int32_t>(c.ranges)};
}

/// Sample i is token (batch, query, KV head) i * step; a block of 128 threads each. Output rows
/// [group][dv], lse [group] and block scores [blocks], all of them plain sums.
__global__ void reference_kernel(Sizes z, const void* q, const void* k, const void* v, int64_t step,
                                 int blocks, double* out, double* lse, double* scores) {
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

void report(bool good, const char* what, double error, const std::string& detail = "") {
  if (!good) ++failures;
  std::printf("  %s %s %.2e %s\n", good ? "ok  " : "FAIL", what, error, detail.c_str());
}

/// Blocks by score descending, equal ones by index, NaN below every number; then ascending.
std::vector<int> best_blocks(const double* scores, const Choice& choice, int current) {
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
bool good_choice(const int32_t* ids, const double* scores, const Choice& choice, int current,
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

bool good_ranges(const int32_t* ranges, const int32_t* ids, const Choice& choice, int position) {
  std::vector<int32_t> want(2 * choice.n, 0);
  int count = 0;
  for (int i = 0; i < choice.n && ids[i] >= 0; ++i) {
    if (i == 0 || ids[i] != ids[i - 1] + 1) want[2 * count++] = ids[i] * choice.block;
    want[2 * count - 1] = std::min((ids[i] + 1) * choice.block, position + 1);
  }
  return std::equal(want.begin(), want.end(), ranges);
}

void compare_blocks(const Sizes& z, const Results& r, const std::vector<double>& scores, int blocks,
                    int64_t samples, int64_t step) {
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

void compare_rows(const Sizes& z, const Results& r, const std::vector<double>& out,
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
void compare(Case& c, const Results& r, int64_t step) {
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

void title(const Sizes& z) {
  std::printf("%s B%d S%d N%d heads %dx%d %d/%d window %d stride %d first %d n %d %s\n", z.name,
              z.batch, z.queries, z.keys, z.kv_heads, z.group, z.dk, z.dv, z.rule.window,
              z.rule.stride, z.first_position, z.choice.n, z.half ? "fp16" : "bf16");
}

/// Everything against fp64; the same bits twice; a bad query and bad keys reach only who attends
/// them.
void run(const Sizes& z) {
  title(z);
  Case c(z);
  const char* reason = unsupported_reason(c.p);
  if (reason != nullptr) return report(false, reason, 0);
  const Results first = results_of(c);
  compare(c, first, 1);
  compare_bits(c, results_of(c), first, "same bits twice", [](int, int) { return true; });
  if (z.queries < 3 || z.keys < 3) return;
  const int query = z.queries * 2 / 3, key = z.keys * 3 / 4;
  c.poison(c.q, query, 1, z.kv_heads * z.group * z.dk);
  const Results second = results_of(c);
  compare_bits(c, second, first, "rows beside a bad query",
               [&](int batch, int i) { return batch > 0 || i != query; });
  compare(c, second, 1);
  c.poison(c.k, key, 1, z.kv_heads * z.dk);
  c.poison(c.v, std::max(0, key - 2), 2, z.kv_heads * z.dv);
  const Results third = results_of(c);
  compare_bits(c, third, second, "rows beside bad keys", [&](int batch, int i) {
    int begin, end;
    keys_of(z.rule, z.first_position + i, z.keys, begin, end);
    return batch > 0 || end <= std::max(0, key - 2) || begin > key;
  });
  compare(c, third, 1);
}

void small_cases() {
  const int dims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
  const Choice usual{64, 16, 1, 2}, none;
  int i = 0;
  for (const auto& [dk, dv] : dims) {
    for (const int group : {1, 2, 3, 4, 6, 8, 16}) {
      const bool half = ++i % 2;
      const int s = 2600 + 37 * i;
      run({"blocks", 2, s, (s - 32) / 16 + 1, 2, group, dk, dv, 0, compressed(32, 16), usual,
           half});
      run({"later", 1, 77, 300, 2, group, dk, dv, 211, window(130), none, !half});
    }
    run({"window", 2, 301, 301, 1, 64, dk, dv, 0, window(70), none, false});
    run({"rising", 1, 5000, 311, 1, 1, dk, dv, 0, compressed(32, 16), usual, false, Data::kRising});
    run({"rising", 1, 5000, 311, 1, 16, dk, dv, 0, compressed(32, 16), usual, true, Data::kRising});
    run({"equal", 1, 3000, 186, 2, 4, dk, dv, 0, compressed(32, 16), usual, false, Data::kEqual});
  }
  const IntervalRule rule = compressed(32, 16);
  run({"equal", 1, 4000, 249, 1, 1, 64, 64, 0, rule, usual, true, Data::kEqual});
  run({"few blocks", 1, 3000, 186, 1, 2, 64, 64, 0, rule, {64, 4, 0, 1}, false});
  run({"forced only", 1, 3000, 186, 1, 2, 64, 64, 0, rule, {64, 3, 1, 2}, false});
  run({"n 32", 1, 5000, 311, 1, 5, 128, 128, 0, rule, {64, 32, 0, 1}, false});
  run({"n 32 rising", 1, 5000, 311, 1, 1, 128, 128, 0, rule, {64, 32, 0, 1}, true, Data::kRising});
  run({"l' 32", 1, 3000, 186, 2, 6, 64, 64, 0, rule, {32, 16, 1, 2}, false});
  run({"l' 16", 1, 3000, 187, 1, 1, 64, 64, 0, compressed(16, 16), {16, 16, 2, 3}, true});
  run({"l' 128", 1, 9000, 561, 1, 3, 128, 128, 0, rule, {128, 16, 1, 2}, false});
  run({"l 64", 1, 3000, 184, 1, 2, 64, 64, 0, compressed(64, 16), {64, 16, 1, 2}, true});
  run({"l 64 equal",
       1,
       4000,
       247,
       1,
       1,
       64,
       64,
       0,
       compressed(64, 16),
       {64, 16, 1, 2},
       true,
       Data::kEqual});
  run({"later blocks", 2, 64, 250, 2, 6, 64, 64, 3960, rule, usual, false});
  run({"one token", 1, 1, 0, 1, 1, 64, 64, 0, rule, usual, false});
}

/// Those whose name begins with `name`.
void large_cases(bool once, const char* name) {
  const auto blocks_of = [](int s) { return (s - 32) / 16 + 1; };
  const Choice usual{64, 16, 1, 2};
  std::vector<Sizes> all;
  const auto add = [&](const char* name, int b, int s, int kv_heads, int group, int dk, int dv,
                       Data data = Data::kRandom) {
    const IntervalRule rule = compressed(32, 16);
    all.push_back({name, b, s, blocks_of(s), kv_heads, group, dk, dv, 0, rule, usual, false, data});
    if (data == Data::kRising) return;
    all.push_back({name, b, s, blocks_of(s), kv_heads, group, dk, dv, 0, rule, {}, false});
    all.push_back({name, b, s, s, kv_heads, group, dk, dv, 0, window(512), {}, false});
  };
  add("paper 8k", 1, 8192, 4, 16, 192, 128);
  add("paper 32k", 1, 32768, 4, 16, 192, 128);
  add("paper 64k", 1, 65536, 4, 16, 192, 128);
  add("paper 64k rising", 1, 65536, 4, 16, 192, 128, Data::kRising);
  add("G4 32k", 1, 32768, 16, 4, 128, 128);
  add("G1 32k", 1, 32768, 64, 1, 128, 128);
  add("G1 32k rising", 1, 32768, 64, 1, 128, 128, Data::kRising);
  add("m7c B8 2k", 8, 2048, 2, 6, 64, 64);
  add("m7c B8 8k", 8, 8192, 2, 6, 64, 64);
  for (const Sizes& z : all) {
    if (std::strncmp(z.name, name, std::strlen(name)) != 0) continue;
    Case c(z);
    if (once) {
      c.forward();
      check(cudaDeviceSynchronize(), "kernel");
      continue;
    }
    if (z.keys < 6000 && (z.choice.block > 0 || z.rule.stride == 1)) {
      title(z);
      compare(c, results_of(c), c.tokens / 301 | 1);
    }
    double pairs = 0;
    for (int i = 0; i < z.queries; ++i) {
      int begin, end;
      keys_of(z.rule, i, z.keys, begin, end);
      pairs += std::max(0, end - begin);
    }
    const double products = pairs * z.batch * z.kv_heads * z.group * 2 * (z.dk + z.dv);
    const float ms = median_time(20, [&] { c.forward(); });
    std::printf("time %-18s %-21s %8.3f ms  %5.0f TFLOP/s of q k and p v\n", z.name,
                z.rule.stride == 1   ? "window"
                : z.choice.block > 0 ? "compressed, selection"
                                     : "compressed",
                ms, products / ms * 1e-9);
  }
}

}  // namespace
}  // namespace nsa::device

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc > 1)
    nsa::device::large_cases(std::strcmp(argv[1], "once") == 0, argc > 2 ? argv[2] : "");
  else
    nsa::device::small_cases();
  std::printf("%d failures\n", nsa::device::testing::failures);
  return nsa::device::testing::failures == 0 ? 0 : 1;
}
