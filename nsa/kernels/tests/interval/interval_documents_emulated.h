// Packed documents in the emulator: a launch over all of them leaves the bits of a launch of each,
// whatever the others hold.
#pragma once
#include <memory>
#include <numeric>

#include "nsa/kernels/interval/document_tiles.h"
#include "nsa/kernels/tests/interval/interval_emulated_problem.h"
#include "nsa/kernels/tokens/document_tables.cu"

namespace nsa::kernels::testing {

/// Documents of these lengths, each a problem of its own, and the packed tensors.
struct PackedProblem {
  PackedProblem(const Sizes& of_all, const std::vector<int>& lengths, Code code)
      : code(code),
        z(of_all),
        offsets{0},
        tokens(std::accumulate(lengths.begin(), lengths.end(), 0)) {
    const bool blocks = z.rule.stride > 1;
    z.batch = 1, z.first_position = 0, z.queries = tokens;
    z.keys = blocks ? tokens / z.rule.stride : tokens;
    packed = std::make_unique<Problem>(z);
    for (Numbers* const x : {&packed->k, &packed->v}) x->fill(0.f);  // rows between documents
    for (size_t i = 0; i < lengths.size(); ++i) {
      Sizes own = z;
      own.queries = lengths[i];
      own.keys = !blocks                      ? lengths[i]
                 : lengths[i] < z.rule.extent ? 0
                                              : (lengths[i] - z.rule.extent) / z.rule.stride + 1;
      documents.emplace_back(own);
      Problem& document = documents.back();
      if (z.data == Data::kRandom)
        document.q.draw(10 * i + 11, 1.5f), document.k.draw(10 * i + 12, 1.f);
      document.v.draw(10 * i + 13, 1.f);
      copy(document, offsets.back());
      offsets.push_back(offsets.back() + lengths[i]);
    }
  }
  int first_key(int token) const { return token / (z.rule.stride > 1 ? z.rule.stride : 1); }
  void copy(const Problem& document, int first) {
    const auto rows = [&](Numbers& to, const Numbers& from, int count, int begin) {
      for (int t = 0; t < count; ++t)
        for (int h = 0; h < from.heads; ++h)
          for (int c = 0; c < from.dim; ++c) to.set(0, begin + t, h, c, float(from.at(0, t, h, c)));
    };
    rows(packed->q, document.q, document.z.queries, first);
    rows(packed->k, document.k, document.z.keys, first_key(first));
    rows(packed->v, document.v, document.z.keys, first_key(first));
  }
  Results forward(const Launch& launch) const {
    return packed->forward([&](IntervalAttention p) {
      DocumentTables tables;
      p.code = code;
      const int count = int(documents.size()), of_tile = tokens_of_tile(p);
      tile.assign(num_document_tiles(tokens, count, of_tile), {-7, -7, -7, -7});
      std::vector<int32_t> start(tokens), position(tokens),
          block_first(tokens / std::max(z.rule.stride, 1));
      tables.cu_seqlens = offsets.data(), tables.documents = count, tables.num_tokens = tokens;
      tables.num_kv_heads = z.kv_heads;
      tables.block_size = z.rule.extent, tables.block_stride = z.rule.stride;
      tables.start = start.data(), tables.position = position.data();
      tables.block_first = block_first.data();
      tables.tiles[0] = {tile.data(), of_tile, z.rule.stride > 1};
      EXPECT_EQ(document_tables(tables, nullptr), cudaSuccess);
      p.documents = tile.data(), p.num_document_tiles = int(tile.size());
      return launch(p);
    });
  }
  /// What a launch left of a document.
  Results of(const Results& all, size_t document) const {
    const auto cut = [&](const auto& x) {
      const int64_t width = int64_t(x.size()) / std::max(tokens, 1);
      return std::decay_t<decltype(x)>(x.begin() + offsets[document] * width,
                                       x.begin() + offsets[document + 1] * width);
    };
    return {cut(all.out), cut(all.lse), cut(all.ids), cut(all.ranges)};
  }

  Code code;
  Sizes z;
  std::vector<int32_t> offsets;
  int tokens;
  std::vector<Problem> documents;
  std::unique_ptr<Problem> packed;
  mutable std::vector<DocumentTile> tile;
};

inline bool same_results(const Results& x, const Results& y) {
  return x.out == y.out && x.lse == y.lse && x.ids == y.ids && x.ranges == y.ranges;
}

/// Every document agrees with fp64 and has the bits of a launch of its own, in every order; so it
/// has beside documents whose keys and values are NaN.
inline void run_documents(const Sizes& z, const std::vector<int>& lengths, const Launch& launch,
                          Code code, int orders = 2) {
  const int before = failures;
  PackedProblem p(z, lengths, code);
  title(p.z);
  set_order(0);
  std::vector<Results> alone;
  for (const Problem& one : p.documents) {
    alone.push_back(one.forward(
        [&](const IntervalAttention& x) { return x.num_queries == 0 ? cudaSuccess : launch(x); }));
    if (one.z.queries > 0) judge(one, alone.back());
  }
  for (int seed = 0; seed < orders; ++seed) {
    set_order(seed);
    const Results all = p.forward(launch);
    for (size_t i = 0; i < lengths.size(); ++i)
      EXPECT_TRUE(same_results(p.of(all, i), alone[i]))
          << z.name << ", document " << i << " of " << lengths[i] << " tokens, order " << seed;
  }
  for (size_t i = 0; i < lengths.size(); i += 2) {
    p.documents[i].k.fill(NAN), p.documents[i].v.fill(NAN);
    p.copy(p.documents[i], p.offsets[i]);
  }
  const Results poisoned = p.forward(launch);
  for (size_t i = 1; i < lengths.size(); i += 2)
    EXPECT_TRUE(same_results(p.of(poisoned, i), alone[i]))
        << z.name << ", document " << i << " of " << lengths[i] << " tokens beside NaN";
  EXPECT_EQ(failures, before) << z.name;
}

}  // namespace nsa::kernels::testing
