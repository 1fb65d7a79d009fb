// The backward pass of interval attention against fp64 loops, without LibTorch. With an argument
// "time" the sizes of the targets are timed as well; "once NAME" does one pass of those whose name
// begins so, for a profiler. Every code that the card can run is tested, or with "sm80" as last
// argument that one alone.
#include <cmath>

#include "nsa/kernels/interval/interval_backward.h"
#include "nsa/kernels/tests/interval/interval_gpu_testing.cuh"

namespace nsa::kernels {
namespace {

using namespace testing;

Code code = Code::kSm90;  // under test

struct Sizes {
  const char* name;
  int batch, queries, keys, kv_heads, group, dk, dv;
  int first_position;
  IntervalRule rule;
  bool half;
  bool d_lse;
  int bad_key = -1, bad_query = -1;  // tokens whose values are NaN
};

__host__ __device__ void keys_of(const Sizes& z, int query, int& begin, int& end) {
  testing::keys_of(z.rule, z.first_position + query, z.keys, begin, end);
}

struct Case {
  explicit Case(const Sizes& z)
      : z(z),
        rows(int64_t(z.batch) * z.queries * z.kv_heads * z.group),
        key_rows(int64_t(z.batch) * z.keys * z.kv_heads),
        q(rows * z.dk * 2),
        k(key_rows * z.dk * 2),
        v(key_rows * z.dv * 2),
        out(rows * z.dv * 2),
        d_out(rows * z.dv * 2),
        d_q(rows * z.dk * 2),
        d_k(key_rows * z.dk * 2),
        d_v(key_rows * z.dv * 2),
        lse(rows * 4),
        d_lse(rows * 4),
        stats(rows * 16) {
    draw(q, 1), draw(k, 2), draw(v, 3), draw(d_out, 4);
    std::vector<float> host(rows);
    for (int64_t i = 0; i < rows; ++i) host[i] = float((i * 7919) % 101) / 101.f - 0.5f;
    check(cudaMemcpy(d_lse.data, host.data(), rows * 4, cudaMemcpyHostToDevice), "copy");
    if (z.bad_key >= 0) {
      poison(k, z.bad_key, z.kv_heads * z.dk);
      poison(v, z.bad_key + 3, z.kv_heads * z.dv);
    }
    if (z.bad_query >= 0) {
      poison(q, z.bad_query, z.kv_heads * z.group * z.dk);
      poison(d_out, z.bad_query + 9, z.kv_heads * z.group * z.dv);
    }
    IntervalAttention& f = problem.forward;
    const int heads = z.kv_heads * z.group;
    f.q = dense(q, z.queries, heads, z.dk), f.k = dense(k, z.keys, z.kv_heads, z.dk),
    f.v = dense(v, z.keys, z.kv_heads, z.dv), f.out = out.data;
    f.lse = static_cast<float*>(lse.data);
    f.batch = z.batch, f.num_queries = z.queries, f.num_keys = z.keys, f.num_heads = heads,
    f.num_kv_heads = z.kv_heads, f.qk_head_dim = z.dk, f.v_head_dim = z.dv,
    f.first_position = z.first_position, f.rule = z.rule, f.scale = 1.f / std::sqrt(float(z.dk));
    f.element = z.half ? Element::kHalf : Element::kBFloat16;
    f.code = code;
    problem.d_out = dense(d_out, z.queries, heads, z.dv);
    problem.d_lse = z.d_lse ? static_cast<float*>(d_lse.data) : nullptr;
    problem.d_q = d_q.data, problem.d_k = d_k.data, problem.d_v = d_v.data;
    check(interval_attention_forward(f, nullptr), "forward");
  }
  void draw(Buffer& b, int seed) {
    draw_kernel<<<1024, 256>>>(b.data, b.bytes / 2, z.half, seed, 1.f);
  }
  void poison(Buffer& b, int token, int width) {
    check(cudaMemset(static_cast<char*>(b.data) + int64_t(token) * width * 2, 0xff, width * 2),
          "poison");
  }
  void backward(Buffer& workspace) {
    problem.workspace = workspace.data;
    check(interval_attention_backward(problem, nullptr), "backward");
  }
  Sizes z;
  int64_t rows, key_rows;
  Buffer q, k, v, out, d_out, d_q, d_k, d_v, lse, d_lse, stats;
  IntervalBackward problem;
};

/// Pointers of a case for kernels.
struct View {
  const void *q, *k, *v, *out, *d_out;
  const float *lse, *d_lse;
  double2* stats;  // lse and delta of each row [B, S, Hq]
  Sizes z;
};
View view_of(Case& c) {
  return {c.q.data,
          c.k.data,
          c.v.data,
          c.out.data,
          c.d_out.data,
          static_cast<float*>(c.lse.data),
          c.z.d_lse ? static_cast<float*>(c.d_lse.data) : nullptr,
          static_cast<double2*>(c.stats.data),
          c.z};
}

struct Row {
  int64_t row;
  int query, batch, kv_head;
  __device__ Row(const Sizes& z, int64_t row) : row(row) {
    const int heads = z.kv_heads * z.group;
    query = row / heads % z.queries, batch = row / heads / z.queries,
    kv_head = row % heads / z.group;
  }
  __device__ int64_t key(const Sizes& z, int key) const {
    return (int64_t(batch) * z.keys + key) * z.kv_heads + kv_head;
  }
};

/// lse and delta of a row: by loops over its keys, or (long sequences) from what the forward pass
/// wrote. A block of 128 threads a row.
__global__ void stats_kernel(View x, bool exact) {
  const Row r(x.z, blockIdx.x);
  int begin, end;
  keys_of(x.z, r.query, begin, end);
  const double scale = 1.0 / sqrt(double(x.z.dk));
  double lse, delta;
  if (exact) {
    double sum = 0, weighted = 0;  // logits are small: no maximum needed
    for (int key = begin + threadIdx.x; key < end; key += 128) {
      const int64_t j = r.key(x.z, key);
      const double e = exp(scale * dot(x.q, r.row * x.z.dk, x.k, j * x.z.dk, x.z.dk, x.z.half));
      sum += e;
      weighted += e * dot(x.d_out, r.row * x.z.dv, x.v, j * x.z.dv, x.z.dv, x.z.half);
    }
    sum = sum_of_block(sum), weighted = sum_of_block(weighted);
    lse = log(sum), delta = weighted / sum;
  } else {
    double part = 0;
    for (int c = threadIdx.x; c < x.z.dv; c += 128)
      part += number(x.out, r.row * x.z.dv + c, x.z.half) *
              number(x.d_out, r.row * x.z.dv + c, x.z.half);
    delta = sum_of_block(part), lse = x.lse[r.row];
  }
  if (x.d_lse != nullptr) delta -= x.d_lse[r.row];
  if (threadIdx.x == 0) x.stats[r.row] = make_double2(lse, delta);
}

__device__ double2 pair_of(const View& x, int64_t row, int64_t key) {
  const double s =
      dot(x.q, row * x.z.dk, x.k, key * x.z.dk, x.z.dk, x.z.half) / sqrt(double(x.z.dk));
  const double dp = dot(x.d_out, row * x.z.dv, x.v, key * x.z.dv, x.z.dv, x.z.half);
  const double p = exp(s - x.stats[row].x);
  return make_double2(p, p * (dp - x.stats[row].y) / sqrt(double(x.z.dk)));
}

/// want[i] = d_q of row i * step; a block a row.
__global__ void d_q_kernel(View x, double* want, int64_t step) {
  extern __shared__ double sums[];
  const Row r(x.z, blockIdx.x * step);
  int begin, end;
  keys_of(x.z, r.query, begin, end);
  for (int c = threadIdx.x; c < x.z.dk; c += 128) sums[c] = 0;
  __syncthreads();
  for (int key = begin + threadIdx.x; key < end; key += 128) {
    const double ds = pair_of(x, r.row, r.key(x.z, key)).y;
    for (int n = 0; n < x.z.dk; ++n) {  // threads start at different columns
      const int c = (n + threadIdx.x) % x.z.dk;
      atomicAdd(sums + c, ds * number(x.k, r.key(x.z, key) * x.z.dk + c, x.z.half));
    }
  }
  __syncthreads();
  for (int c = threadIdx.x; c < x.z.dk; c += 128) want[int64_t(blockIdx.x) * x.z.dk + c] = sums[c];
}

/// want[i] = d_k and d_v of key row i * step.
__global__ void d_kv_kernel(View x, double* want, int64_t step) {
  extern __shared__ double sums[];
  const int64_t j = blockIdx.x * step;
  const int kv_head = j % x.z.kv_heads, key = j / x.z.kv_heads % x.z.keys,
            batch = j / x.z.kv_heads / x.z.keys, width = x.z.dk + x.z.dv;
  for (int c = threadIdx.x; c < width; c += 128) sums[c] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < int64_t(x.z.queries) * x.z.group; i += 128) {
    const int query = i / x.z.group;
    int begin, end;
    keys_of(x.z, query, begin, end);
    if (key < begin || key >= end) continue;
    const int64_t row =
        ((int64_t(batch) * x.z.queries + query) * x.z.kv_heads + kv_head) * x.z.group +
        i % x.z.group;
    const double2 pair = pair_of(x, row, j);
    for (int n = 0; n < width; ++n) {  // threads start at different columns
      const int c = (n + threadIdx.x) % width;
      atomicAdd(sums + c, c < x.z.dk
                              ? pair.y * number(x.q, row * x.z.dk + c, x.z.half)
                              : pair.x * number(x.d_out, row * x.z.dv + c - x.z.dk, x.z.half));
    }
  }
  __syncthreads();
  for (int c = threadIdx.x; c < width; c += 128) want[int64_t(blockIdx.x) * width + c] = sums[c];
}

/// Compares rows i * step of `have` (width columns) with want[i]; finite where `want` is.
void compare(const Sizes& z, const char* what, const std::vector<uint16_t>& have,
             const std::vector<double>& want, int want_width, int want_begin, int width,
             int64_t step) {
  const int64_t rows = int64_t(want.size()) / want_width;
  double largest = 0, error = 0;
  int64_t wrong_class = 0, where = -1, finite = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (int c = 0; c < width; ++c) {
      const double w = want[i * want_width + want_begin + c];
      const double h = value_of(have, i * step * width + c, z.half);
      if (std::isfinite(w) != std::isfinite(h)) ++wrong_class, where = i * step;
      if (!std::isfinite(w) || !std::isfinite(h)) continue;
      ++finite;
      largest = std::max(largest, std::fabs(w));
      if (std::fabs(w - h) > error) error = std::fabs(w - h), where = i * step;
    }
  const double bound = z.half ? 2e-3 : 1.2e-2, relative = largest > 1e-9 ? error / largest : error;
  const bool good = finite > 0 && relative <= bound && wrong_class == 0;
  if (!good) ++failures;
  std::printf("  %s %s error %.2e of %.2e (row %lld)%s\n", good ? "ok  " : "FAIL", what, relative,
              largest, (long long)where, wrong_class ? ", finite where it must not be or not" : "");
}

void run(const Sizes& z, bool exact) {
  Case c(z);
  std::printf("%s B%d S%d N%d heads %dx%d %d/%d window %d stride %d first %d %s\n", z.name, z.batch,
              z.queries, z.keys, z.kv_heads, z.group, z.dk, z.dv, z.rule.window, z.rule.stride,
              z.first_position, z.half ? "fp16" : "bf16");
  const char* reason = unsupported_reason(c.problem);
  if (reason != nullptr) {
    std::printf("  FAIL refused: %s\n", reason);
    ++failures;
    return;
  }
  Buffer workspace(workspace_bytes(c.problem));
  for (Buffer* b : {&c.d_q, &c.d_k, &c.d_v, &workspace}) b->fill(0xff);
  c.backward(workspace);
  check(cudaDeviceSynchronize(), "kernels");
  const auto d_q = read(c.d_q), d_k = read(c.d_k), d_v = read(c.d_v);
  workspace.fill(0x3f);
  c.backward(workspace);
  if (d_q != read(c.d_q) || d_k != read(c.d_k) || d_v != read(c.d_v)) {
    std::printf("  FAIL not the same bits twice\n");
    ++failures;
  }
  const int64_t q_step = exact ? 1 : c.rows / 61, k_step = exact ? 1 : c.key_rows / 47;
  const int64_t q_rows = (c.rows + q_step - 1) / q_step,
                k_rows = (c.key_rows + k_step - 1) / k_step;
  const View x = view_of(c);
  Buffer want_q(q_rows * z.dk * 8), want_kv(k_rows * (z.dk + z.dv) * 8);
  stats_kernel<<<unsigned(c.rows), 128>>>(x, exact);
  d_q_kernel<<<unsigned(q_rows), 128, z.dk * 8>>>(x, static_cast<double*>(want_q.data), q_step);
  d_kv_kernel<<<unsigned(k_rows), 128, (z.dk + z.dv) * 8>>>(x, static_cast<double*>(want_kv.data),
                                                            k_step);
  check(cudaDeviceSynchronize(), "reference");
  std::vector<double> host_q(want_q.bytes / 8), host_kv(want_kv.bytes / 8);
  check(cudaMemcpy(host_q.data(), want_q.data, want_q.bytes, cudaMemcpyDeviceToHost), "copy");
  check(cudaMemcpy(host_kv.data(), want_kv.data, want_kv.bytes, cudaMemcpyDeviceToHost), "copy");
  compare(z, "d_q", d_q, host_q, z.dk, 0, z.dk, q_step);
  compare(z, "d_k", d_k, host_kv, z.dk + z.dv, 0, z.dk, k_step);
  compare(z, "d_v", d_v, host_kv, z.dk + z.dv, z.dk, z.dv, k_step);
}

void time(const Sizes& z) {
  Case c(z);
  Buffer workspace(workspace_bytes(c.problem));
  double pairs = 0;
  for (int i = 0; i < z.queries; ++i) {
    int begin, end;
    keys_of(z, i, begin, end);
    pairs += std::max(0, end - begin);
  }
  const double flop = pairs * z.batch * z.kv_heads * z.group * (6.0 * z.dk + 4.0 * z.dv);
  const float ms = median_time(10, [&] { c.backward(workspace); });
  std::printf("time %-28s %8.3f ms  %6.0f TFLOP/s useful  workspace %.0f MB\n", z.name, ms,
              flop / ms * 1e-9, double(workspace.bytes) * 1e-6);
}

void small_cases() {
  const int dims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
  int i = 0;
  for (const auto& [dk, dv] : dims)
    for (const int group : {1, 2, 3, 6, 16, 64}) {
      const bool half = ++i % 2;
      const int kv = group > 16 ? 1 : 2;
      run({"window", 2, 301, 301, kv, group, dk, dv, 0, window(70 + i), half, i % 3 == 0}, true);
      run({"compressed", 1, 333, 20, kv, group, dk, dv, 0, compressed(32, 16), !half, i % 3 == 1},
          true);
      run({"later", 1, 77, 300, kv, group, dk, dv, 211, window(130), half, false}, true);
      run({"bad", 2, 190, 190, kv, group, dk, dv, 0, window(31), half, false, 100, 60}, true);
    }
  run({"one", 1, 1, 1, 1, 1, 64, 64, 0, window(5), false, true}, true);
  run({"group 96", 1, 40, 40, 1, 96, 128, 128, 0, window(9), true, true}, true);
  run({"group 67", 1, 20, 20, 1, 67, 192, 128, 0, window(9), false, true}, true);
  run({"short blocks", 1, 700, 349, 2, 3, 128, 128, 0, compressed(4, 2), false, true}, true);
  run({"split", 1, 3000, 186, 1, 4, 192, 128, 0, compressed(32, 16), false, true}, true);
  run({"split bad", 1, 3000, 186, 1, 4, 192, 128, 0, compressed(32, 16), true, false, -1, 1500},
      true);
  run({"later blocks", 1, 64, 250, 2, 6, 64, 64, 3960, compressed(32, 16), false, true}, true);
}

Sizes paper(const char* name, int s, bool is_window) {
  return {name,  1,
          s,     is_window ? s : (s - 32) / 16 + 1,
          4,     16,
          192,   128,
          0,     is_window ? window(512) : compressed(32, 16),
          false, false};
}

void large_cases(const char* once) {
  const Sizes all[] = {
      paper("paper 8k window", 8192, true),
      paper("paper 8k compressed", 8192, false),
      paper("paper 32k window", 32768, true),
      paper("paper 32k compressed", 32768, false),
      paper("paper 64k window", 65536, true),
      paper("paper 64k compressed", 65536, false),
      {"G4 32k window", 1, 32768, 32768, 16, 4, 128, 128, 0, window(512), false, false},
      {"G4 32k compressed", 1, 32768, 2047, 16, 4, 128, 128, 0, compressed(32, 16), false, false},
      {"G1 32k window", 1, 32768, 32768, 64, 1, 128, 128, 0, window(512), false, false},
      {"G1 32k compressed", 1, 32768, 2047, 64, 1, 128, 128, 0, compressed(32, 16), false, false},
      {"m7c B8 2k window", 8, 2048, 2048, 2, 6, 64, 64, 0, window(512), false, false},
      {"m7c B8 2k compressed", 8, 2048, 127, 2, 6, 64, 64, 0, compressed(32, 16), false, false},
      {"m7c B4 8k window", 4, 8192, 8192, 2, 6, 64, 64, 0, window(512), false, false},
      {"m7c B4 8k compressed", 4, 8192, 511, 2, 6, 64, 64, 0, compressed(32, 16), false, false},
      {"m7c 32k window", 1, 32768, 32768, 2, 6, 64, 64, 0, window(512), false, false},
      {"m7c 32k compressed", 1, 32768, 2047, 2, 6, 64, 64, 0, compressed(32, 16), false, false},
  };
  for (const Sizes& z : all) {
    if (once != nullptr) {
      if (std::strncmp(z.name, once, std::strlen(once)) != 0) continue;
      Case c(z);
      Buffer workspace(workspace_bytes(c.problem));
      c.backward(workspace);
      check(cudaDeviceSynchronize(), "kernels");
      continue;
    }
    if (z.queries < 60000) run(z, false);
    time(z);
  }
}

}  // namespace
}  // namespace nsa::kernels

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  using nsa::kernels::Code;
  std::vector<Code> codes = {Code::kSm90, Code::kSm80};
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  const bool only_sm80 = argc > 1 && std::strcmp(argv[argc - 1], "sm80") == 0;
  if (only_sm80 || major < 9) codes = {Code::kSm80};
  argc -= only_sm80;
  for (const Code code : codes) {
    nsa::kernels::code = code;
    std::printf("code of %s\n", code == Code::kSm90 ? "sm_90a" : "sm_80");
    if (argc > 2) {
      nsa::kernels::large_cases(argv[2]);
      continue;
    }
    nsa::kernels::small_cases();
    if (argc > 1) nsa::kernels::large_cases(nullptr);
  }
  std::printf("%d failures\n", nsa::kernels::testing::failures);
  return nsa::kernels::testing::failures == 0 ? 0 : 1;
}
