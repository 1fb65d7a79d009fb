// The differentiable calls of ContextExchange.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/train/context/context_exchange.h"

namespace nsa::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr const char* kExchange = "exchange";
constexpr const char* kPart = "part";

void keep(AutogradContext* ctx, ContextExchange* exchange, const std::string& part) {
  ctx->saved_data[kExchange] = reinterpret_cast<int64_t>(exchange);
  ctx->saved_data[kPart] = part;
}
ContextExchange& kept(AutogradContext* ctx) {
  return *reinterpret_cast<ContextExchange*>(ctx->saved_data[kExchange].toInt());
}
std::string part_of_gradients(AutogradContext* ctx) {
  return ctx->saved_data[kPart].toStringRef() + ", gradients";
}

at::ScalarType sum_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// [world, B, n, ..] of the ranks' pieces -> [B, world n, ..] in the order of the sequence: first
/// pieces of ranks 0, 1, .., then second pieces of the last rank, the one before it, ..
at::Tensor in_sequence(const at::Tensor& of_ranks) {
  const int64_t half = of_ranks.size(2) / ContextShard::kPieces;
  const at::Tensor early = of_ranks.narrow(2, 0, half),
                   late = of_ranks.narrow(2, half, half).flip(0);
  return at::cat({early, late}, 0).transpose(0, 1).flatten(1, 2);
}

/// The inverse: [B, world n, ..] -> [world, B, n, ..].
at::Tensor by_ranks(const at::Tensor& sequence, int64_t world) {
  const int64_t half = sequence.size(1) / (ContextShard::kPieces * world);
  const at::Tensor pieces = sequence
                                .view({sequence.size(0), ContextShard::kPieces * world, half,
                                       sequence.size(2), sequence.size(3)})
                                .transpose(0, 1);
  return at::cat({pieces.narrow(0, 0, world), pieces.narrow(0, world, world).flip(0)}, 2);
}

struct GatherTokens : Function<GatherTokens> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, ContextExchange* exchange,
                            const std::string& part) {
    keep(ctx, exchange, part);
    return in_sequence(exchange->gather(x, part));
  }
  /// Every rank sends each piece's gradient to the rank that has the piece.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ContextExchange& exchange = kept(ctx);
    const at::Tensor g = grads[0].contiguous();
    const std::vector<int64_t> one(static_cast<size_t>(exchange.world()), 1);
    const at::Tensor terms =
        exchange.exchange(by_ranks(g, exchange.world()), one, one, part_of_gradients(ctx));
    at::Tensor sum = terms[0].to(sum_type(g));
    for (int64_t r = 1; r < exchange.world(); ++r) sum = sum + terms[r].to(sum_type(g));
    return {sum.to(g.scalar_type()), at::Tensor(), at::Tensor()};
  }
};

/// Who has the pieces before and behind those of a rank. The piece before a first one is the first
/// piece of rank - 1; before a second one, the second piece of rank + 1; the last rank's second
/// piece follows its first.
struct Neighbours {
  explicit Neighbours(const ContextExchange& exchange)
      : lower(exchange.rank() > 0), upper(exchange.rank() + 1 < exchange.world()) {
    counts.assign(static_cast<size_t>(exchange.world()), 0);
    const auto rank = static_cast<size_t>(exchange.rank());
    if (lower) counts[rank - 1] = 1;
    if (upper) counts[rank + 1] = 1;
  }
  bool lower, upper;
  std::vector<int64_t> counts;  ///< one row for and from each of them
};

/// Sends `to_lower` and `to_upper` there, and gets what these send; an empty tensor where there is
/// nobody.
std::pair<at::Tensor, at::Tensor> swap_rows(ContextExchange& exchange, const at::Tensor& to_lower,
                                            const at::Tensor& to_upper, const std::string& part) {
  const Neighbours near(exchange);
  std::vector<at::Tensor> rows;
  if (near.lower) rows.push_back(to_lower);
  if (near.upper) rows.push_back(to_upper);
  const at::Tensor sent = rows.empty() ? to_lower.unsqueeze(0).narrow(0, 0, 0) : at::stack(rows);
  const at::Tensor got = exchange.exchange(sent, near.counts, near.counts, part);
  return {near.lower ? got[0] : at::Tensor(), near.upper ? got[got.size(0) - 1] : at::Tensor()};
}

struct WithPrevious : Function<WithPrevious> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t rows,
                            ContextExchange* exchange, const std::string& part) {
    keep(ctx, exchange, part);
    ctx->saved_data["rows"] = rows;
    const int64_t half = x.size(1) / ContextShard::kPieces;
    const at::Tensor first = x.narrow(1, 0, half), second = x.narrow(1, half, half);
    const at::Tensor first_end = first.narrow(1, half - rows, rows),
                     second_end = second.narrow(1, half - rows, rows);
    const auto [lower, upper] = swap_rows(*exchange, second_end, first_end, part);
    return at::cat({lower.defined() ? lower : at::zeros_like(first_end), first,
                    upper.defined() ? upper : first_end, second},
                   1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ContextExchange& exchange = kept(ctx);
    const int64_t rows = ctx->saved_data["rows"].toInt();
    const at::Tensor& g = grads[0];
    const int64_t half = g.size(1) / ContextShard::kPieces - rows;
    const at::Tensor before_first = g.narrow(1, 0, rows),
                     before_second = g.narrow(1, rows + half, rows);
    const auto [lower, upper] =
        swap_rows(exchange, before_first, before_second, part_of_gradients(ctx));
    at::Tensor first = g.narrow(1, rows, half).clone(),
               second = g.narrow(1, 2 * rows + half, half).clone();
    first.narrow(1, half - rows, rows).add_(upper.defined() ? upper : before_second);
    if (lower.defined()) second.narrow(1, half - rows, rows).add_(lower);
    return {at::cat({first, second}, 1), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// [B, tokens, H, D] -> [B H blocks, tokens of a block, D].
at::Tensor by_blocks(const at::Tensor& x, int64_t block) {
  return x.view({x.size(0), x.size(1) / block, block, x.size(2), x.size(3)})
      .permute({0, 3, 1, 2, 4})
      .reshape({-1, block, x.size(3)});
}

at::Tensor by_tokens(const at::Tensor& blocks, at::IntArrayRef sizes, int64_t block) {
  return blocks.view({sizes[0], sizes[2], sizes[1] / block, block, sizes[3]})
      .permute({0, 2, 3, 1, 4})
      .reshape(sizes);
}

/// Ids count the blocks of whole sequences; here are the first `blocks` of them.
at::Tensor places_among(const BlockTransfer& t, int64_t world, int64_t blocks) {
  const int64_t all = t.blocks * world;
  return at::floor_divide(t.got, all) * blocks + t.got.remainder(all);
}

struct FetchBlocks : Function<FetchBlocks> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const BlockTransfer& t,
                            int64_t block, int64_t tokens, ContextExchange* exchange,
                            const std::string& part) {
    keep(ctx, exchange, part);
    const int64_t here = tokens / block;
    const at::Tensor places = places_among(t, exchange->world(), here);
    ctx->saved_data["to"] = t.to;
    ctx->saved_data["from"] = t.from;
    ctx->saved_data["block"] = block;
    ctx->saved_data["count"] = x.size(1);
    ctx->save_for_backward({t.given, places});
    const at::Tensor got =
        exchange->exchange(by_blocks(x, block).index_select(0, t.given), t.to, t.from, part);
    at::Tensor blocks = at::zeros({x.size(0) * x.size(2) * here, block, x.size(3)}, x.options());
    blocks.index_copy_(0, places, got);
    at::Tensor whole = by_tokens(blocks, {x.size(0), tokens, x.size(2), x.size(3)}, block);
    for_own_pieces(*exchange, x.size(1), tokens, [&](int64_t from, int64_t to, int64_t count) {
      whole.narrow(1, to, count).copy_(x.narrow(1, from, count));
    });
    return whole;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ContextExchange& exchange = kept(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &given = saved[0], &places = saved[1];
    const std::vector<int64_t> to = ctx->saved_data["to"].toIntVector(),
                               from = ctx->saved_data["from"].toIntVector();
    const int64_t block = ctx->saved_data["block"].toInt(),
                  count = ctx->saved_data["count"].toInt();
    const at::Tensor g = grads[0].contiguous();
    const at::Tensor terms = exchange.exchange(by_blocks(g, block).index_select(0, places), from,
                                               to, part_of_gradients(ctx));
    at::Tensor own =
        at::zeros({g.size(0), count, g.size(2), g.size(3)}, g.options().dtype(sum_type(g)));
    for_own_pieces(exchange, count, g.size(1), [&](int64_t at, int64_t in_g, int64_t tokens) {
      own.narrow(1, at, tokens).copy_(g.narrow(1, in_g, tokens));
    });
    at::Tensor sum = by_blocks(own, block);
    int64_t begin = 0;
    for (const int64_t n : to) {  // rank by rank: no block is in one rank's part twice
      sum.index_add_(0, given.narrow(0, begin, n), terms.narrow(0, begin, n).to(sum.scalar_type()));
      begin += n;
    }
    const at::Tensor none;
    return {by_tokens(sum, own.sizes(), block).to(g.scalar_type()), none, none, none, none, none};
  }

 private:
  /// f(where in this rank's tokens, where in the sequence, how many) for pieces among the first
  /// `tokens` tokens.
  template <class F>
  static void for_own_pieces(const ContextExchange& exchange, int64_t count, int64_t tokens, F f) {
    const ContextShard shard{exchange.rank(), exchange.world(), count * exchange.world()};
    for (int64_t slot = 0; slot < ContextShard::kPieces; ++slot)
      if (shard.end(slot) <= tokens)
        f(slot * shard.piece_tokens(), shard.begin(slot), shard.piece_tokens());
  }
};

}  // namespace

at::Tensor ContextExchange::gather_tokens(const at::Tensor& x, const std::string& part) {
  return GatherTokens::apply(x, this, part);
}

at::Tensor ContextExchange::with_previous(const at::Tensor& x, int64_t rows,
                                          const std::string& part) {
  TORCH_CHECK(rows <= x.size(1) / ContextShard::kPieces,
              "nsa::ContextExchange: a piece must have at least ", rows, " tokens, got ",
              x.size(1) / ContextShard::kPieces);
  return rows <= 0 ? x : WithPrevious::apply(x, rows, this, part);
}

at::Tensor ContextExchange::fetch_blocks(const at::Tensor& x, const BlockTransfer& transfer,
                                         int64_t block, int64_t tokens, const std::string& part) {
  return FetchBlocks::apply(x.contiguous(), transfer, block, tokens, this, part);
}

}  // namespace nsa::train
