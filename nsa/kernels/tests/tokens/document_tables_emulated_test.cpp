// Tables of packed documents, and rotation and pooling by them, in the emulator: every document has
// what it has alone.
#include "nsa/kernels/tokens/document_tables.cu"

#include <array>
#include <utility>

#include "nsa/kernels/tests/tokens/near.h"
#include "nsa/kernels/tests/tokens/test_rotations.h"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels::emulator {
namespace {

using Tile = std::array<int, 4>;
Tile numbers_of(const DocumentTile& x) { return {x.first, x.count, x.start, x.first_key}; }
std::pair<int, int> pair_of(const int2& x) { return {x.x, x.y}; }

struct Tables {
  std::vector<int32_t> offsets, start, position, block_first;
  std::vector<float> poison;
  std::vector<int2> window, blocks;
  std::vector<DocumentTile> tiles[2];
  int tokens = 0;

  Tables(std::vector<int32_t> cu_seqlens, int num_tokens, int size, int stride, int longest,
         int window_size = 5, int heads = 2)
      : offsets(std::move(cu_seqlens)),
        start(num_tokens, -7),
        position(num_tokens, -7),
        block_first(num_tokens / stride, -7),
        poison(num_tokens, -7.f),
        window(num_tokens * heads),
        blocks(num_tokens * heads),
        tokens(num_tokens) {
    DocumentTables p;
    p.cu_seqlens = offsets.data(), p.documents = int(offsets.size()) - 1, p.num_tokens = num_tokens;
    p.num_kv_heads = heads, p.block_size = size, p.block_stride = stride;
    p.window = window_size, p.longest = longest;
    p.start = start.data(), p.position = position.data(), p.poison = poison.data();
    p.block_first = block_first.data(), p.window_range = window.data();
    p.block_range = blocks.data();
    for (int i = 0; i < 2; ++i) {
      const int of_tile = i == 0 ? 8 : 3;
      tiles[i].assign(num_document_tiles(num_tokens, p.documents, of_tile), {-7, -7, -7, -7});
      p.tiles[i] = {tiles[i].data(), of_tile, i == 0};
    }
    EXPECT_EQ(document_tables(p, nullptr), cudaSuccess);
  }
};

std::vector<int32_t> offsets_of(const std::vector<int>& lengths) {
  std::vector<int32_t> offsets{0};
  for (const int length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

const std::vector<std::vector<int>> kLengths = {
    {0, 1, 3, 8, 0, 9, 16, 17, 7, 0}, {5}, {1, 1, 1, 1}, {40}, {0, 0, 12}, {33, 2, 0, 0, 1}};

TEST(DocumentTables, HoldEveryTokenBlockAndTileOnce) {
  const int size = 8, stride = 4;
  for (const std::vector<int>& lengths : kLengths) {
    const std::vector<int32_t> offsets = offsets_of(lengths);
    const int tokens = offsets.back();
    const Tables t(offsets, tokens, size, stride, tokens);
    std::vector<int32_t> block_first(tokens / stride, -1);
    std::vector<Tile> tiles[2];
    for (size_t d = 0; d < lengths.size(); ++d) {
      const int begin = offsets[d], end = offsets[d + 1];
      for (int token = begin; token < end; ++token) {
        EXPECT_EQ(t.start[token], begin);
        EXPECT_EQ(t.position[token], token - begin);
        EXPECT_EQ(t.poison[token], 0.f);
        int visible = 0;
        while (begin + visible * stride + size <= token + 1) ++visible;
        for (int head = 0; head < 2; ++head) {
          EXPECT_EQ(pair_of(t.window[token * 2 + head]),
                    std::pair(std::max(begin, token - 4), token + 1));
          EXPECT_EQ(pair_of(t.blocks[token * 2 + head]),
                    std::pair(begin / stride, begin / stride + visible));
        }
      }
      for (int first = begin, i = begin / stride; first + size <= end; first += stride, ++i) {
        ASSERT_LT(i, int(block_first.size()));
        EXPECT_EQ(block_first[i], -1) << "rows of documents meet";
        block_first[i] = first;
      }
      for (int i = 0; i < 2; ++i) {
        const int of_tile = i == 0 ? 8 : 3;
        for (int first = begin; first < end; first += of_tile)
          tiles[i].push_back(
              {first, std::min(of_tile, end - first), begin, i == 0 ? begin / stride : begin});
      }
    }
    EXPECT_EQ(t.block_first, block_first);
    for (int i = 0; i < 2; ++i) {
      std::vector<Tile> have;
      for (const DocumentTile& tile : t.tiles[i])
        if (tile.count > 0)
          have.push_back(numbers_of(tile));
        else
          EXPECT_EQ(numbers_of(tile), (Tile{0, 0, 0, 0}));
      EXPECT_EQ(have, tiles[i]) << "tiles " << i;
    }
  }
}

TEST(DocumentTables, MarkTokensOfBrokenOffsetsAndStayInside) {
  const int tokens = 40, stride = 4;
  const std::vector<std::vector<int32_t>> broken = {
      {0, 10, 30}, {5, 40}, {0, 30, 20, 40}, {-9, 20, 40}, {0, 50}, {0, 90, 40}, {60, 70}};
  for (const std::vector<int32_t>& offsets : broken) {
    const Tables t(offsets, tokens, 8, stride, tokens);
    for (int token = 0; token < tokens; ++token) {
      EXPECT_TRUE(t.start[token] >= 0 && t.start[token] <= token);
      EXPECT_EQ(t.position[token], token - t.start[token]);
    }
    for (const int32_t first : t.block_first) EXPECT_TRUE(first >= -1 && first + 8 <= tokens);
    for (const auto& tiles : t.tiles)
      for (const DocumentTile& tile : tiles) {
        EXPECT_TRUE(tile.first >= 0 && tile.count >= 0 && tile.first + tile.count <= tokens);
        EXPECT_TRUE(tile.start >= 0 && tile.start <= tile.first && tile.first_key >= 0 &&
                    tile.first_key <= tokens);
      }
  }
  const Tables outside({5, 30}, tokens, 8, stride, tokens);
  for (int token = 0; token < tokens; ++token)
    EXPECT_EQ(std::isnan(outside.poison[token]), token < 5 || token >= 30) << token;
  const Tables longer({0, 12, 40}, tokens, 8, stride, 20);
  for (int token = 0; token < tokens; ++token)
    EXPECT_EQ(std::isnan(longer.poison[token]), token >= 12 + 20) << token;
}

/// One tensor of packed tokens and the same documents alone.
struct Pooling {
  std::vector<int32_t> offsets;
  int size, stride, tokens;
  Tables tables;
  std::vector<float2> cos_sin;  // of the packed tokens

  Pooling(const std::vector<int>& lengths, int size, int stride, int dim)
      : offsets(offsets_of(lengths)),
        size(size),
        stride(stride),
        tokens(offsets.back()),
        tables(offsets, tokens, size, stride, tokens) {
    const std::vector<float2> all = cos_sin_for_test(tokens, dim);
    for (int token = 0; token < tokens; ++token)
      cos_sin.insert(cos_sin.end(), all.begin() + tables.position[token] * (dim / 2),
                     all.begin() + (tables.position[token] + 1) * (dim / 2));
  }
  int blocks_of(size_t d) const {
    const int length = offsets[d + 1] - offsets[d];
    return length < size ? 0 : (length - size) / stride + 1;
  }
};

/// Tokens [first, first + count) of x.
Numbers cut(const Numbers& x, int first, int count) {
  Numbers part(1, count, x.heads, x.dim, x.half);
  for (int t = 0; t < count; ++t)
    for (int h = 0; h < x.heads; ++h)
      for (int c = 0; c < x.dim; ++c) part.set(0, t, h, c, float(x.at(0, first + t, h, c)));
  return part;
}

void expect_rows(const std::vector<uint16_t>& all, int64_t first, const std::vector<uint16_t>& part,
                 const char* what) {
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first)) << what;
}

TEST(DocumentTables, SourcesOfADocumentAreThoseItHasAlone) {
  constexpr int kHeads = 2, kDim = 16;
  for (const std::vector<int>& lengths : kLengths)
    for (const bool half : {false, true}) {
      const Pooling x(lengths, 8, 4, kDim);
      const Numbers q = Numbers(1, x.tokens, kHeads, kDim, half).draw(3, 1.f);
      const auto run = [&](const Numbers& from, int blocks, const float2* cos_sin,
                           const int32_t* block_first, std::vector<uint16_t>& copy,
                           std::vector<uint16_t>& means) {
        copy = unwritten(size_t(from.tokens) * kHeads * kDim);
        means = unwritten(size_t(blocks) * kHeads * kDim);
        TokenSources p;
        p.copy[p.num_copies++] = {from.strided(), copy.data(), kHeads};
        p.pool[p.num_pools++] = {from.strided(), means.data(), kHeads, kDim, /*rotated=*/true};
        p.batch = 1, p.num_tokens = from.tokens, p.num_blocks = blocks;
        p.block_size = x.size, p.block_stride = x.stride, p.qk_head_dim = kDim;
        p.cos_sin = cos_sin, p.block_first = block_first;
        p.element = half ? Element::kHalf : Element::kBFloat16;
        EXPECT_EQ(token_sources(p, nullptr), cudaSuccess);
      };
      std::vector<uint16_t> copy, means, own_copy, own_means;
      run(q, x.tokens / x.stride, x.cos_sin.data(), x.tables.block_first.data(), copy, means);
      const std::vector<float2> cos_sin = cos_sin_for_test(x.tokens, kDim);
      std::vector<bool> written(x.tokens / x.stride, false);
      for (size_t d = 0; d < lengths.size(); ++d) {
        if (lengths[d] == 0) continue;
        const Numbers own = cut(q, x.offsets[d], lengths[d]);
        run(own, x.blocks_of(d), cos_sin.data(), nullptr, own_copy, own_means);
        const int first = x.offsets[d] / x.stride;
        expect_rows(copy, int64_t(x.offsets[d]) * kHeads * kDim, own_copy, "copy");
        expect_rows(means, int64_t(first) * kHeads * kDim, own_means, "means");
        for (int i = 0; i < x.blocks_of(d); ++i) written[first + i] = true;
      }
      for (size_t row = 0; row < written.size(); ++row)
        for (int i = 0; i < kHeads * kDim && !written[row]; ++i)
          ASSERT_EQ(means[row * kHeads * kDim + i], 0) << "row " << row << " of no block";
    }
}

TEST(DocumentTables, GradientsOfADocumentAreThoseItHasAlone) {
  constexpr int kHeads = 2, kDim = 16;
  for (const std::vector<int>& lengths : kLengths)
    for (const auto& [size, stride] : {std::pair(8, 4), std::pair(4, 4), std::pair(12, 4)}) {
      const Pooling x(lengths, size, stride, kDim);
      const Numbers term = Numbers(1, x.tokens, kHeads, kDim, false).draw(3, 1.f);
      // Rows of no block hold numbers that must not be added.
      const Numbers means = Numbers(1, x.tokens / stride, kHeads, kDim, false).draw(4, 5.f);
      const auto run = [&](const Numbers& from, const Numbers& blocks, const float2* cos_sin,
                           const int32_t* block_first, const int32_t* start) {
        std::vector<uint16_t> out = unwritten(size_t(from.tokens) * kHeads * kDim);
        TokenGradients p;
        p.of[0].term[0] = from.bits.data(), p.of[0].out = out.data();
        p.of[0].blocks = blocks.tokens > 0 ? blocks.bits.data() : nullptr;
        p.of[0].num_heads = kHeads, p.of[0].head_dim = kDim, p.of[0].rotated = true;
        p.count = 1;
        p.batch = 1, p.num_tokens = from.tokens, p.num_blocks = blocks.tokens;
        p.block_size = size, p.block_stride = stride, p.qk_head_dim = kDim;
        p.cos_sin = cos_sin, p.block_first = block_first, p.start = start;
        EXPECT_EQ(token_gradients(p, nullptr), cudaSuccess);
        return out;
      };
      const std::vector<uint16_t> all =
          run(term, means, x.cos_sin.data(), x.tables.block_first.data(), x.tables.start.data());
      const std::vector<float2> cos_sin = cos_sin_for_test(x.tokens, kDim);
      for (size_t d = 0; d < lengths.size(); ++d) {
        if (lengths[d] == 0) continue;
        const std::vector<uint16_t> own = run(cut(term, x.offsets[d], lengths[d]),
                                              cut(means, x.offsets[d] / stride, x.blocks_of(d)),
                                              cos_sin.data(), nullptr, nullptr);
        expect_rows(all, int64_t(x.offsets[d]) * kHeads * kDim, own, "gradient");
      }
    }
}

}  // namespace
}  // namespace nsa::kernels::emulator
