#pragma once
#include <array>
#include <vector>

#include "nsa/model/decoder.h"
#include "nsa/train/data/token_source.h"

namespace suites {

/// Mean gates of the three branches in one layer over one part of the rows.
struct LayerGates {
  int64_t layer = 0;
  int64_t first = 0, last = 0;             ///< tokens of a row, both included
  std::array<double, 3> mean = {0, 0, 0};  ///< compressed, selected, window
};

/// What a trained NSA model gives each branch: means over heads and over the first `count` rows of
/// `seq_len` tokens, for each layer and each quarter of a row. Empty for dense attention.
std::vector<LayerGates> gates_by_layer(nsa::Decoder& model, const nsa::train::TokenSource& rows,
                                       int64_t count, int64_t seq_len, at::Device device);

}  // namespace suites
