#pragma once
#include "nsa/backend/kernel_choice.h"

/// Facts of cards that exist, with the machine code that a build for all of them has: which kernel
/// runs where is known without asking a card.
namespace nsa {

inline CardFacts known_card(int major, int minor, size_t shared_bytes) {
  return {true,
          true,
          major,
          minor,
          shared_bytes,
          machine_code_of("80 90a-real"),
          /*compiles_ptx=*/true};
}

inline const CardFacts kA100 = known_card(8, 0, 166912), kRtx30 = known_card(8, 6, 101376),
                       kRtx40 = known_card(8, 9, 101376), kH100 = known_card(9, 0, 232448),
                       kB200 = known_card(10, 0, 232448), kB300 = known_card(10, 3, 232448),
                       kRtx50 = known_card(12, 0, 101376);

}  // namespace nsa
