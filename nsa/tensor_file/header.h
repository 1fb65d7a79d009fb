#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nsa/tensor_file/dtype.h"

namespace nsa::tensor_file {

/// The place of one tensor, from the JSON header.
struct HeaderEntry {
  Dtype dtype = Dtype::kF64;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< bytes, from the end of the header
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::map<std::string, HeaderEntry> entries;
};

/// Largest JSON header accepted, the limit of the format's own library.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// Parses and checks the JSON text against `data_bytes` of data. Throws std::invalid_argument whose
/// text begins with the key concerned.
Header parse_header(const std::string& text, uint64_t data_bytes);

/// The JSON text of a header, padded with spaces so that 8 + its size is a multiple of 8.
std::string header_text(const Header& header);

}  // namespace nsa::tensor_file
