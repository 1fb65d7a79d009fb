// Interval attention, forward, and the choice of blocks against fp64 loops, without LibTorch. With
// arguments "time [NAME]" the sizes of the targets whose name begins so are checked by samples and
// timed instead; "once [NAME]" does one pass of each, for a profiler.
#include "nsa/kernels/tests/interval/interval_judge.cuh"

namespace nsa::kernels {
namespace {

using namespace testing;

/// Everything against fp64; the same bits twice; a bad query and bad keys reach only rows that
/// attend them.
void run_code(const Sizes& z, Code code) {
  title(z);
  if (code == Code::kSm80) std::puts("  in sm_80 code");
  Case c(z, code);
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

void run(const Sizes& z) {
  for (const Code code : {Code::kSm90, Code::kSm80}) run_code(z, code);
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
  for (const int g : {1, 4, 6, 16}) {
    const int dim = g == 4 ? 128 : 64;
    const IntervalRule own = compressed(16, 16);
    for (const Data data : {Data::kRandom, Data::kRising, Data::kEqual, Data::kComb})
      run({"l = d = l'", 2, 4700, 293, 2, g, dim, dim, 0, own, {16, 16, 1, 2}, g == 6, data});
  }
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
  const Choice most{64, 32, 1, 1};
  for (const int g : {1, 2, 4, 6, 16}) {  // comb: lists that are full
    const Data comb = Data::kComb;
    run({"comb", 2, 75, 4094, 2, g, 64, 64, 65400, rule, usual, false, comb});
    run({"comb n 32", 2, 75, 4094, 1, g, 128, 128, 65400, rule, most, false, comb});
    run({"long", 2, 75, 4094, 2, g, 192, 128, 65400, rule, usual, false});
  }
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
  add("m7c 8k", 1, 8192, 2, 6, 64, 64);
  for (const int s : {8192, 32768}) {
    const char* name = s == 8192 ? "NSA-1B 8k" : "NSA-1B 32k";
    const IntervalRule rule = compressed(16, 16);
    all.push_back({name, 1, s, s / 16, 2, 16, 64, 64, 0, rule, {16, 16, 1, 2}, false});
    all.push_back({name, 1, s, s / 16, 2, 16, 64, 64, 0, rule, {}, false});
    all.push_back({name, 1, s, s, 2, 16, 64, 64, 0, window(128), {}, false});
  }
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
}  // namespace nsa::kernels

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc > 1)
    nsa::kernels::large_cases(std::strcmp(argv[1], "once") == 0, argc > 2 ? argv[2] : "");
  else
    nsa::kernels::small_cases();
  std::printf("%d failures\n", nsa::kernels::testing::failures);
  return nsa::kernels::testing::failures == 0 ? 0 : 1;
}
