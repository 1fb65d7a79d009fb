#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What a JSON parser does not report: positions of keys, duplicate keys, depth of nesting.
namespace harness {

struct KeyToken {
  size_t object;  ///< offset of the object's '{'
  size_t offset;  ///< offset of the key's opening quote
  std::string name;
};

struct JsonScan {
  std::vector<KeyToken> keys;
  std::optional<size_t> too_deep;  ///< offset of the bracket that nests deeper than allowed
};

/// Walks the brackets, strings and comments of `text`, which need not be valid JSON. Offsets count
/// from the start of `text`.
JsonScan scan_json(std::string_view text, size_t max_depth);

}  // namespace harness
