#include "nsa/kernels/tests/emulator/sm90/wgmma.h"

#include <bit>
#include <cstring>
#include <tuple>
#include <vector>

#include "nsa/kernels/tests/emulator/async_memory.h"
#include "nsa/kernels/tests/emulator/emulator.h"
#include "nsa/kernels/tests/emulator/threads.h"

namespace nsa::kernels::emulator {
namespace {

constexpr int kMostColumns = 256, kDepth = 16;

/// A product of a warp that was issued.
struct Issued {
  WarpgroupProduct of_warp;  // what its lanes have in common
  const uint32_t* a[32];
  float* d[32];
  int group;
};
struct WarpProducts {
  std::vector<Issued> waiting;  // not computed yet
  int groups = 0;               // committed
  int open = 0;                 // products since
  size_t issued = 0;
  bool fenced = false;  // since it last waited
};
using Kind = std::tuple<int, bool, bool, bool, bool, bool, uint64_t, uint64_t>;
Kind kind_of(const WarpgroupProduct& p) {
  return {p.columns, p.half, p.a_by_columns, p.b_by_rows, p.a_in_registers, p.accumulates,
          p.a,       p.b};
}

std::vector<WarpProducts> warps;
std::vector<std::vector<Kind>> kinds;  // what each warpgroup has issued

WarpProducts& own_warp() { return warps[running_thread() / 32]; }

float value_of(uint16_t bits, bool half) {
  if (!half) return std::bit_cast<float>(uint32_t{bits} << 16);
  const uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ff) << 13);
  return std::bit_cast<float>(sign |
                              std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}

/// Matrix descriptor (PTX ISA, wgmma): addresses and offsets in units of 16 bytes.
struct Matrix {
  uint32_t start, leading, stride;

  explicit Matrix(uint64_t bits)
      : start((bits & 0x3fff) << 4),
        leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4) {
    if (bits >> 62 != 1) fail("wgmma: a matrix that is not swizzled by 128 bytes is not emulated");
    if (bits >> 49 & 7) fail("wgmma: a matrix with a base offset is not emulated");
  }
  /// Of value `inner` < 16 of the summed axis in row (or column) `outer`; seven more lie behind it.
  /// `by_outer`: those of the next rows (MN-major, in blocks of 64 x 8), else of the summed axis.
  uint32_t piece(int outer, int inner, bool by_outer) const {
    const uint32_t o = static_cast<uint32_t>(outer), i = static_cast<uint32_t>(inner);
    const uint32_t place = by_outer ? o / 64 * leading + i / 8 * stride + i % 8 * 128 + o % 64 * 2
                                    : o / 8 * stride + o % 8 * 128 + i * 2;
    return swizzle_128(start + place);
  }
};

/// to[inner][outer] of rows (columns) [first, first + count).
void read_matrix(uint64_t bits, bool by_outer, bool half, int first, int count, float* to,
                 int width) {
  const Matrix matrix(bits);
  const int step_i = by_outer ? 1 : 8, step_o = by_outer ? 8 : 1;
  for (int i = 0; i < kDepth; i += step_i)
    for (int o = 0; o < count; o += step_o) {
      uint16_t values[8];
      std::memcpy(values, async_memory(matrix.piece(first + o, i, by_outer), 16, "wgmma"), 16);
      for (int j = 0; j < 8; ++j)
        to[by_outer ? i * width + o + j : (i + j) * width + o] = value_of(values[j], half);
    }
}
void read_registers(const Issued& x, float* to) {
  for (int lane = 0; lane < 32; ++lane)
    for (int j = 0; j < 8; ++j) {
      const int row = lane / 4 + j / 2 % 2 * 8, k = lane % 4 * 2 + j % 2 + j / 4 * 8;
      to[k * 16 + row] =
          value_of(static_cast<uint16_t>(x.a[lane][j / 2] >> 16 * (j % 2)), x.of_warp.half);
    }
}

// The widest vectors that the processor has, chosen when the program starts; not in sanitized
// programs, which start before they can choose.
#if defined(__SANITIZE_ADDRESS__)
#define NSA_WIDEST_VECTORS
#else
#define NSA_WIDEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

/// sums[row][column] of 16 rows and kColumns columns, k in ascending order.
template <int kColumns>
inline void multiply_columns(const float* a, const float* b, float* sums) {
  for (int row = 0; row < 16; ++row) {
    float sum[kColumns] = {};
    for (int k = 0; k < kDepth; ++k)
      for (int c = 0; c < kColumns; ++c) sum[c] += a[k * 16 + row] * b[k * kMostColumns + c];
    std::memcpy(sums + row * kMostColumns, sum, sizeof sum);
  }
}
NSA_WIDEST_VECTORS void multiply(const float* a, const float* b, float* sums, int columns) {
  int first = 0;
  for (; first + 64 <= columns; first += 64) multiply_columns<64>(a, b + first, sums + first);
  for (; first < columns; first += 8) multiply_columns<8>(a, b + first, sums + first);
}

/// A lane holds two neighbours of each eight columns, in its row and in the eighth below.
void add_to_registers(const Issued& x, const float* sums) {
  for (int lane = 0; lane < 32; ++lane) {
    const float* upper = sums + lane / 4 * kMostColumns + lane % 4 * 2;
    const float* lower = upper + 8 * kMostColumns;
    float* d = x.d[lane];
    for (int column = 0; column < x.of_warp.columns; column += 8, d += 4) {
      const float of_lane[4] = {upper[column], upper[column + 1], lower[column], lower[column + 1]};
      for (int i = 0; i < 4; ++i) d[i] = x.of_warp.accumulates ? d[i] + of_lane[i] : of_lane[i];
    }
  }
}

/// The 16 rows of warp `index`. Sums of 16 products are added to d: the order within a sum is the
/// machine's own, none is promised.
void compute(const Issued& x, int index) {
  const WarpgroupProduct& p = x.of_warp;
  static float a[kDepth * 16], b[kDepth * kMostColumns], sums[16 * kMostColumns];
  if (p.a_in_registers) {
    read_registers(x, a);
  } else {
    read_matrix(p.a, p.a_by_columns, p.half, index % 4 * 16, 16, a, 16);
  }
  read_matrix(p.b, p.b_by_rows, p.half, 0, p.columns, b, kMostColumns);
  multiply(a, b, sums, p.columns);
  add_to_registers(x, sums);
}

void compute_until(WarpProducts& warp, int index, int group) {
  size_t count = 0;
  for (; count < warp.waiting.size() && warp.waiting[count].group < group; ++count)
    compute(warp.waiting[count], index);
  warp.waiting.erase(warp.waiting.begin(),
                     warp.waiting.begin() + static_cast<std::ptrdiff_t>(count));
}

/// The warp's `number`-th product must be that of the warps beside it.
void compare_with_warpgroup(WarpProducts& warp, int index, const WarpgroupProduct& p) {
  std::vector<Kind>& all = kinds[index / 4];
  if (warp.issued == all.size()) all.push_back(kind_of(p));
  if (all[warp.issued] != kind_of(p))
    fail("wgmma: product %zu of warp %d is another one in the warps beside it", warp.issued, index);
  ++warp.issued;
}

}  // namespace

void start_product(const WarpgroupProduct& product) {
  WarpgroupProduct own = product;
  meet("wgmma", ~0u, &own, [](void* const(&lanes)[32], uint32_t mask) {
    if (mask != ~0u) fail("wgmma: a warp of fewer than 32 threads");
    const int index = running_thread() / 32;
    WarpProducts& warp = warps[index];
    Issued x{*static_cast<WarpgroupProduct*>(lanes[0]), {}, {}, warp.groups};
    for (int i = 0; i < 32; ++i) {
      const auto& lane = *static_cast<WarpgroupProduct*>(lanes[i]);
      if (kind_of(lane) != kind_of(x.of_warp)) fail("wgmma: lanes 0 and %d differ", i);
      x.a[i] = lane.a_registers, x.d[i] = lane.d;
    }
    if (!warp.fenced) fail("wgmma without wgmma.fence since warp %d last waited", index);
    compare_with_warpgroup(warp, index, x.of_warp);
    ++warp.open;
    if (x.of_warp.a_in_registers) end_loads();
    // In their order: a product that is computed now takes those before it along.
    const uint64_t seed = order_seed();
    warp.waiting.push_back(x);
    if (seed == 0 || (seed > 1 && random_below(2) == 0))
      compute_until(warp, index, warp.groups + 1);
  });
}

void fence_products() {
  meet("wgmma.fence", ~0u, nullptr, [](void* const(&)[32], uint32_t) { own_warp().fenced = true; });
}
void commit_products() {
  meet("wgmma.commit_group", ~0u, nullptr, [](void* const(&)[32], uint32_t) {
    ++own_warp().groups;
    own_warp().open = 0;
  });
}
void wait_products(int pending) {
  meet("wgmma.wait_group", ~0u, &pending, [](void* const(&lanes)[32], uint32_t) {
    WarpProducts& warp = own_warp();
    compute_until(warp, running_thread() / 32, warp.groups - *static_cast<int*>(lanes[0]));
    warp.fenced = false;
  });
}

void begin_products(int count) {
  warps.assign(count, WarpProducts{});
  kinds.assign((count + 3) / 4, {});
}
void end_products() {
  for (size_t i = 0; i < warps.size(); ++i)
    if (!warps[i].waiting.empty() || warps[i].open > 0)
      fail("warp %zu has ended before its products", i);
  for (const std::vector<Kind>& all : kinds)
    for (size_t i = 0; i < warps.size(); ++i)
      if (&all == &kinds[i / 4] && !all.empty() && warps[i].issued != all.size())
        fail("wgmma: warp %zu has issued %zu products, the warps beside it %zu", i, warps[i].issued,
             all.size());
}

}  // namespace nsa::kernels::emulator
