#include "nsa/train/context/context_shard.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "nsa/program/input_error.h"

namespace nsa::train {

void require_context_shards(const NsaConfig& config, int64_t tokens, int64_t world) {
  const auto reject = [&](const std::string& rule) {
    throw InputError("training option context_ranks must divide sequences of " +
                     std::to_string(tokens) + " tokens into two pieces a rank " + rule + ", got " +
                     std::to_string(world));
  };
  const int64_t pieces = ContextShard::kPieces * world;
  if (world < 1 || tokens % pieces != 0) reject("of equal length");
  const int64_t piece = tokens / pieces;
  const int64_t unit = std::lcm(config.sel_block_size, config.block_stride);
  if (piece % unit != 0)
    reject("of whole selection blocks (multiples of " + std::to_string(unit) + " tokens), not of " +
           std::to_string(piece));
  const int64_t least = std::max(config.block_size, config.window - 1);
  if (piece < least)
    reject("of at least " + std::to_string(least) +
           " tokens, the larger of block_size and window - 1, not of " + std::to_string(piece) +
           "; use fewer ranks or longer sequences");
}

}  // namespace nsa::train
