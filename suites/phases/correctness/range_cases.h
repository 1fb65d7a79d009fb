#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nsa/ops/select/ranges.h"

namespace suites {

/// One conversion of block ids to token intervals with its true result.
struct RangeCase {
  std::string id;
  int64_t sel_block_size = 0;
  at::Tensor block_idx;  ///< [B,S,Hkv,K] int32
  at::Tensor t;          ///< [S] int64, position of each row's query
  at::Tensor expected;   ///< [B,S,Hkv,K,2] int32
};

/// Reads a case file (format: configs/ranges/README.md). `path` may be absolute, relative
/// to the working folder, or relative to a folder above the executable. Throws std::runtime_error
/// naming file, case and what is wrong; a file without cases is an error.
std::vector<RangeCase> read_range_cases(const std::string& path);

/// The oracle's intervals for the case, row by row.
at::Tensor oracle_ranges(const RangeCase& one);

/// v1, v1_bulk, v2 in this order.
const std::vector<nsa::RangesVersion>& range_versions();

}  // namespace suites
