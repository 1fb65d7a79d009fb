#pragma once
#include <cstdint>

#include "nsa/config/config.h"

namespace nsa::train {

/// The tokens that a rank of a context group has of every sequence. It is cut into 2 world equal
/// pieces; rank r has pieces r and 2 world - 1 - r, one behind the other, so that all ranks see as
/// many compressed blocks ("zigzag": an early piece and a late one).
struct ContextShard {
  static constexpr int64_t kPieces = 2;  ///< of a rank

  int64_t rank = 0, world = 1;
  int64_t sequence = 0;  ///< tokens of a whole sequence

  int64_t piece_tokens() const { return sequence / (kPieces * world); }
  int64_t count() const { return kPieces * piece_tokens(); }
  /// Number of piece `slot` (0 or 1) among all pieces of a sequence.
  int64_t piece(int64_t slot) const { return slot == 0 ? rank : kPieces * world - 1 - rank; }
  int64_t begin(int64_t slot) const { return piece(slot) * piece_tokens(); }
  int64_t end(int64_t slot) const { return begin(slot) + piece_tokens(); }
};

/// Throws InputError naming sizes and remedy unless sequences of `tokens` can be divided among
/// `world` ranks: into equal pieces of whole selection blocks, each no shorter than a compression
/// block and than the part of a window that reaches into the piece before.
void require_context_shards(const NsaConfig& config, int64_t tokens, int64_t world);

}  // namespace nsa::train
