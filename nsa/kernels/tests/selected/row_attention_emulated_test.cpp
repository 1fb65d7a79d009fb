// Row attention in the emulator against fp64 loops. The kernel is known to be right on GPUs, so
// this also judges the emulator.
#include "nsa/kernels/selected/rows/row_attention.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "nsa/kernels/common/shared_bytes.h"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/numbers.h"
#include "nsa/kernels/tests/emulator/order.h"

namespace nsa::kernels::portable {
namespace {

using emulator::Numbers;

struct Sizes {
  int batch, queries, keys, kv_heads, group, ranges, first_position, gap;
};

struct Problem {
  Problem(const Sizes& z, int dk, int dv, bool half)
      : z(z),
        q(z.batch, z.queries, z.kv_heads * z.group, dk, half, z.gap),
        k(z.batch, z.keys, z.kv_heads, dk, half, z.gap),
        v(z.batch, z.keys, z.kv_heads, dv, half, z.gap),
        rows(int64_t(z.batch) * z.queries * z.kv_heads),
        dk(dk),
        dv(dv) {
    q.draw(1, 1.5f), k.draw(2, 1.f), v.draw(3, 1.f);
    std::mt19937 random(z.keys);
    for (int64_t i = 0; i < rows * z.ranges; ++i) {
      const int begin = int(random() % (z.keys + 8)) - 4;
      ranges.push_back(begin);
      ranges.push_back(begin + int(random() % 90) - 10);  // may be none
    }
  }
  struct Left {
    std::vector<uint16_t> out;
    std::vector<float> lse;
    bool operator==(const Left& x) const {
      return out == x.out && std::memcmp(lse.data(), x.lse.data(), lse.size() * 4) == 0;
    }
  };
  template <typename Launch>
  Left forward(const Launch& launch_kernel) const {
    Left left{std::vector<uint16_t>(rows * z.group * dv, 0x7b7b),
              std::vector<float>(rows * z.group, 1e9f)};
    RowAttention p;
    p.q = q.strided(), p.k = k.strided(), p.v = v.strided(), p.ranges = ranges.data();
    p.out = left.out.data(), p.lse = left.lse.data();
    p.batch = z.batch, p.num_queries = z.queries, p.num_keys = z.keys;
    p.num_heads = z.kv_heads * z.group, p.num_kv_heads = z.kv_heads, p.num_ranges = z.ranges;
    p.qk_head_dim = dk, p.v_head_dim = dv, p.first_position = z.first_position;
    p.scale = 1.f / std::sqrt(float(dk));
    EXPECT_EQ(launch_kernel(p), cudaSuccess);
    return left;
  }
  std::set<int> keys_of(int64_t row, int position) const {
    std::set<int> keys;
    for (int i = 0; i < z.ranges; ++i) {
      const int32_t* range = ranges.data() + (row * z.ranges + i) * 2;
      for (int key = std::max(range[0], 0);
           key < std::min(range[1], std::min(position + 1, z.keys)); ++key)
        keys.insert(key);
    }
    return keys;
  }
  void judge(const Left& left) const {
    double largest = 0, error = 0, lse_error = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int kv_head = int(row % z.kv_heads), token = int(row / z.kv_heads % z.queries),
                b = int(row / z.kv_heads / z.queries);
      const std::set<int> keys = keys_of(row, z.first_position + token);
      for (int g = 0; g < z.group; ++g) {
        double sum = 0;
        std::vector<double> total(dv);
        for (const int key : keys) {
          double dot = 0;
          for (int c = 0; c < dk; ++c)
            dot += q.at(b, token, kv_head * z.group + g, c) * k.at(b, key, kv_head, c);
          const double p = std::exp(dot / std::sqrt(double(dk)));
          sum += p;
          for (int c = 0; c < dv; ++c) total[c] += p * v.at(b, key, kv_head, c);
        }
        const int64_t place = row * z.group + g;
        if (keys.empty())
          ASSERT_EQ(left.lse[place], -INFINITY);
        else if (std::isfinite(sum))
          lse_error = std::max(lse_error, std::fabs(left.lse[place] - std::log(sum)));
        for (int c = 0; c < dv; ++c) {
          const double want = keys.empty() ? 0 : total[c] / sum,
                       have = emulator::value_of(left.out[place * dv + c], q.half);
          ASSERT_EQ(std::isfinite(want), std::isfinite(have)) << row << " " << g << " " << c;
          if (!std::isfinite(want)) continue;
          largest = std::max(largest, std::fabs(want));
          error = std::max(error, std::fabs(want - have));
        }
      }
    }
    EXPECT_LE(error, (q.half ? 1e-3 : 8e-3) * largest);
    EXPECT_LE(lse_error, 1e-4);
  }
  Sizes z;
  Numbers q, k, v;
  int64_t rows;
  int dk, dv;
  std::vector<int32_t> ranges;
};

template <int DK, int DV, int kStages, typename T>
void check_kernel() {
  const bool half = std::is_same_v<T, __half>;
  int warps_of_row = 4;
  const auto forward = [&](const RowAttention& p) {
    return launch_row_attention<DK, DV, kStages, T>(p, warps_of_row, nullptr);
  };
  for (const int warps : {4, 1})
    for (const Sizes& z : {Sizes{2, 3, 200, 2, 6, 4, 190, 8}, Sizes{1, 2, 70, 1, 16, 1, 0, 0},
                           Sizes{1, 2, 300, 1, 1, 32, 260, 0}, Sizes{1, 2, 900, 1, 3, 33, 800, 0},
                           Sizes{1, 1, 2000, 2, 1, 64, 1999, 0}, Sizes{1, 1, 1, 1, 2, 1, 0, 0}}) {
      if (warps == 1 && (z.ranges > kMostRangesOfWarp || DV > kMostColumnsOfWarp)) continue;
      warps_of_row = warps;
      Problem problem(z, DK, DV, half);
      emulator::set_order(0);
      const Problem::Left first = problem.forward(forward);
      problem.judge(first);
      // What a card is asked for before the launch.
      EXPECT_EQ(emulator::shared_bytes_of_launch(), sm80::shared_bytes_of(DK, DV).rows);
      for (int seed = 1; seed < 4; ++seed) {
        emulator::set_order(seed);
        EXPECT_TRUE(problem.forward(forward) == first) << "order " << seed;
      }
      if (z.keys < 100) continue;
      for (int key = 60; key < 63; ++key)  // rows that attend them are not finite, no others
        for (int c = 0; c < DV; ++c) problem.v.set(0, key, 0, c, key % 2 ? NAN : INFINITY);
      problem.judge(problem.forward(forward));
    }
}

TEST(RowAttentionEmulated, EqualsFp64) {
  check_kernel<64, 64, 3, __nv_bfloat16>();
  check_kernel<64, 64, 3, __half>();
  check_kernel<128, 128, 4, __nv_bfloat16>();
  check_kernel<128, 128, 4, __half>();
  check_kernel<192, 128, 3, __nv_bfloat16>();
  check_kernel<192, 128, 3, __half>();
  check_kernel<256, 256, 3, __nv_bfloat16>();
  check_kernel<256, 256, 3, __half>();
}

}  // namespace
}  // namespace nsa::kernels::portable
