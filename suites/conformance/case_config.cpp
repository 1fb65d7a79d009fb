#include "suites/conformance/case_config.h"

#include <array>
#include <random>

namespace suites {
namespace {

constexpr std::array kPhiNames = {"mean", "conv", "mlp"};
constexpr std::array kGateNames = {"none", "sigmoid", "softmax"};
constexpr int64_t kTokens = 384;  // at least so many in a batch
constexpr std::array kRopeNames = {"before_pool", "block_start", "none"};

/// Draws that are the same on every platform (std::uniform_int_distribution is not).
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  template <size_t N>
  int64_t of(const std::array<int64_t, N>& values) {
    return values[static_cast<size_t>(between(0, N - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

std::string to_string(const CaseConfig& c) {
  const auto n = [](int64_t value) { return std::to_string(value); };
  return "B" + n(c.batch) + "_S" + n(c.tokens) + "_H" + n(c.num_heads) + "x" + n(c.num_kv_heads) +
         "_d" + n(c.qk_head_dim) + "x" + n(c.v_head_dim) + "_l" + n(c.block_size) + "_" +
         n(c.block_stride) + "_" + n(c.sel_block_size) + "_n" + n(c.top_n) + "_" + n(c.n_initial) +
         "_" + n(c.n_local) + "_w" + n(c.window) + "_" + kPhiNames[static_cast<size_t>(c.phi)] +
         "_" + kGateNames[static_cast<size_t>(c.gate)] + (c.gate_per_kv_head ? "_shared_" : "_") +
         kRopeNames[static_cast<size_t>(c.rope)];
}

namespace {

/// What the kernels distinguish: dims, heads of a group (full, ragged and half tiles of rows), l,
/// d, l', n, w, tokens.
struct KernelSizes {
  int64_t dk, dv, group, kv_heads, tokens, block, stride, sel_block, top_n, window;
};
constexpr std::array<KernelSizes, kKernelCases> kKernelSizes = {{
    {64, 64, 1, 2, 200, 32, 16, 64, 4, 65},
    {64, 64, 6, 2, 131, 32, 16, 64, 3, 33},
    {128, 128, 2, 2, 193, 16, 8, 32, 5, 100},
    {128, 128, 16, 1, 97, 32, 16, 64, 3, 128},
    {192, 128, 16, 1, 130, 32, 16, 64, 4, 50},
    {192, 128, 3, 2, 129, 8, 4, 16, 6, 17},
    {64, 64, 4, 2, 65, 32, 16, 64, 16, 512},
    {256, 256, 4, 1, 150, 32, 16, 64, 4, 65},
}};

CaseConfig kernel_config(int64_t index) {
  const KernelSizes& sizes = kKernelSizes.at(static_cast<size_t>(index));
  CaseConfig c;
  c.tokens = sizes.tokens;
  c.num_kv_heads = sizes.kv_heads;
  c.num_heads = sizes.kv_heads * sizes.group;
  c.qk_head_dim = sizes.dk;
  c.v_head_dim = sizes.dv;
  c.block_size = sizes.block;
  c.block_stride = sizes.stride;
  c.sel_block_size = sizes.sel_block;
  c.top_n = sizes.top_n;
  c.window = sizes.window;
  c.gate = static_cast<GateKind>(index % 3);
  c.rope = static_cast<RopeKind>(index % 2);
  c.batch = (kTokens + c.tokens - 1) / c.tokens;
  return c;
}

}  // namespace

CaseConfig sample_config(uint64_t seed, int64_t index) {
  if (index >= kKernelCase) return kernel_config(index - kKernelCase);
  Draw draw(seed * 1000003 + static_cast<uint64_t>(index));
  CaseConfig c;
  c.num_kv_heads = draw.between(1, 2);
  c.num_heads = c.num_kv_heads * draw.between(1, 4);
  c.qk_head_dim = 2 * draw.between(2, 8);
  c.v_head_dim = draw.between(7, 16);
  c.block_stride = draw.of(std::array<int64_t, 3>{2, 3, 4});
  c.block_size = c.block_stride * draw.between(1, 3);
  c.sel_block_size = c.block_size + c.block_stride * draw.between(0, 3);
  c.n_initial = draw.between(0, 2);
  c.n_local = draw.between(1, 2);
  c.top_n = c.n_initial + c.n_local + draw.between(0, 3);
  c.window = draw.between(1, 24);
  c.phi = static_cast<Phi>(index % 3);
  c.gate = static_cast<GateKind>(index / 3 % 3);
  c.rope = static_cast<RopeKind>((index + index / 3) % 3);
  c.gate_per_kv_head = draw.between(0, 1) == 1;
  const int64_t l = c.block_size, lsel = c.sel_block_size, w = c.window;
  const std::array<int64_t, kCornerCases> corners = {1,        l - 1, l, l + 1, lsel - 1, lsel,
                                                     lsel + 1, w - 1, w, w + 1, 37,       2 * w};
  c.tokens = index < kCornerCases ? corners[static_cast<size_t>(index)] : draw.between(1, 61);
  if (c.tokens < 1) c.tokens = 1;
  // Enough rows that the largest error of the plain computation does not depend on chance.
  c.batch = (kTokens + c.tokens - 1) / c.tokens;
  return c;
}

}  // namespace suites
