// The choice of blocks by an index in the emulator, against the definition in fp64.
#include "nsa/kernels/index/index_selection.cu"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/numbers.h"
#include "nsa/kernels/tests/emulator/order.h"

namespace nsa::kernels::testing {
namespace {

using emulator::Numbers;

struct Sizes {
  int batch, tokens, heads, dim, top_n;
  bool half = false;
  int gap = 0;
};

struct Problem {
  Sizes z;
  Numbers q, k;

  /// Small integers: sums of their products are exact, so there are true ties and the choice is.
  explicit Problem(const Sizes& sizes)
      : z(sizes),
        q(z.batch, z.tokens, z.heads, z.dim, z.half, z.gap),
        k(z.batch, z.tokens, 1, z.dim, z.half, z.gap) {
    std::mt19937_64 random(7);
    for (Numbers* const x : {&q, &k})
      x->for_each([&](uint16_t& one) {
        one = emulator::bits_of(float(int(random() >> 40) % 5 - 2), z.half);
      });
  }

  IndexSelection launched(std::vector<int32_t>& ids) const {
    IndexSelection p;
    p.q = q.strided(), p.k = k.strided();
    p.block_idx = ids.data();
    p.batch = z.batch, p.num_tokens = z.tokens, p.num_heads = z.heads, p.head_dim = z.dim;
    p.block_size = kIndexedBlock, p.top_n = z.top_n;
    p.element = z.half ? Element::kHalf : Element::kBFloat16;
    return p;
  }

  std::vector<int32_t> run(uint64_t order) const {
    std::vector<int32_t> ids(size_t(z.batch) * z.tokens * z.heads * z.top_n, -7);
    emulator::set_card(emulator::Card::kA100);
    emulator::set_order(order);
    EXPECT_EQ(select_by_index(launched(ids), nullptr), cudaSuccess);
    return ids;
  }

  double product(int b, int t, int h, int s) const {
    double sum = 0;
    for (int c = 0; c < z.dim; ++c) sum += q.at(b, t, h, c) * k.at(b, s, 0, c);
    return sum;
  }

  /// What the header states, word by word.
  std::vector<int32_t> wanted_row(int b, int t, int h) const {
    struct Block {
      double score;
      int id;
    };
    std::vector<Block> before;
    for (int j = 0; j < t / kIndexedBlock; ++j) {
      double most = -INFINITY;
      for (int s = j * kIndexedBlock; s < (j + 1) * kIndexedBlock; ++s) {
        const double one = product(b, t, h, s);
        most = std::isnan(one) || std::isnan(most) ? NAN : std::max(most, one);
      }
      before.push_back({most, j});
    }
    std::ranges::stable_sort(before, [](const Block& x, const Block& y) {
      return std::isnan(y.score) ? !std::isnan(x.score) : x.score > y.score;
    });
    std::set<int32_t> chosen{t / kIndexedBlock};
    for (size_t i = 0; i < before.size() && int(chosen.size()) < z.top_n; ++i)
      chosen.insert(before[i].id);
    std::vector<int32_t> ids(chosen.begin(), chosen.end());
    ids.resize(z.top_n, -1);
    return ids;
  }
};

/// Every `step`-th token.
void check(const Problem& p, int step = 1, int orders = 2) {
  const Sizes& z = p.z;
  SCOPED_TRACE("S" + std::to_string(z.tokens) + " H" + std::to_string(z.heads) + " d" +
               std::to_string(z.dim) + " n" + std::to_string(z.top_n) + (z.half ? " fp16" : ""));
  const std::vector<int32_t> have = p.run(0);
  int wrong = 0;
  for (int b = 0; b < z.batch; ++b)
    for (int t = 0; t < z.tokens; t += step)
      for (int h = 0; h < z.heads; ++h) {
        const std::vector<int32_t> want = p.wanted_row(b, t, h);
        const size_t row = ((size_t(b) * z.tokens + t) * z.heads + h) * z.top_n;
        if (!std::equal(want.begin(), want.end(), have.begin() + row) && ++wrong < 4)
          ADD_FAILURE() << "token " << t << " head " << h << ", first id " << have[row];
      }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(std::count(have.begin(), have.end(), -7), 0) << "not written";
  for (int order = 1; order < orders && emulator::kOtherOrders; ++order)
    EXPECT_TRUE(p.run(order) == have) << order;
}

TEST(IndexSelection, AllSizes) {
  for (const int dim : {64, 128})
    for (const bool half : {false, true})
      for (const int heads : {1, 3, 4})
        check(Problem({1, dim == 64 ? 700 : 400, heads, dim, heads + 1, half, heads == 3 ? 8 : 0}),
              heads == 1 ? 1 : 7);
}

TEST(IndexSelection, ManyBlocksAndFewPlaces) {
  check(Problem({1, 2600, 1, 64, 16}), 31);
  check(Problem({1, 1300, 1, 64, 2, true}), 31);
  check(Problem({1, 300, 2, 64, 1}), 5);
}

TEST(IndexSelection, Lengths) {
  for (const int tokens : {1, 127, 128, 129, 257}) check(Problem({2, tokens, 2, 64, 4}), 3);
}

TEST(IndexSelection, OrdersOfWarps) { check(Problem({2, 520, 4, 128, 3}), 13, 8); }

TEST(IndexSelection, NotFinite) {
  for (const bool half : {false, true}) {
    Problem p({1, 900, 2, 64, 4, half});
    p.k.set(0, 200, 0, 3, NAN);        // a block below all others
    p.k.set(0, 300, 0, 5, INFINITY);   // above, or by its sign and those of its block below
    p.k.set(0, 450, 0, 5, -INFINITY);  // times 0 is NaN
    p.q.set(0, 800, 1, 9, NAN);        // a row of equals
    check(p, 4);
    EXPECT_EQ(p.run(0)[(size_t(800) * 2 + 1) * 4], 0) << "equals go to the lower index";
  }
}

TEST(IndexSelection, RefusesByName) {
  const Problem p({1, 10, 1, 64, 4});
  std::vector<int32_t> ids(40);
  IndexSelection one = p.launched(ids);
  EXPECT_EQ(unsupported_reason(one), nullptr);
  one.head_dim = 96;
  EXPECT_STREQ(unsupported_reason(one), "heads of an index are 64 or 128 wide");
  EXPECT_EQ(select_by_index(one, nullptr), cudaErrorInvalidValue);
  one = p.launched(ids), one.block_size = 64;
  EXPECT_STREQ(unsupported_reason(one), "blocks have 128 tokens");
  one = p.launched(ids), one.top_n = 17;
  EXPECT_STREQ(unsupported_reason(one), "a row has 1 to 16 blocks");
  one = p.launched(ids), one.q.token = 63;
  EXPECT_STREQ(unsupported_reason(one), "an address or stride is no multiple of 16 bytes");
}

}  // namespace
}  // namespace nsa::kernels::testing
