#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

/// Texts that values were parsed from, so that an error can name file, line and column even after
/// values of several files were merged. Every text has a range of offsets of its own; a parsed
/// nlohmann value carries its offset (JSON_DIAGNOSTIC_POSITIONS) through copies.
namespace harness {

class Source {
 public:
  /// Parses JSON with // and /* */ comments. Throws ConfigError for what JSON forbids and for what
  /// it leaves open: duplicate keys, numbers out of range, bytes that are not UTF-8, nesting deeper
  /// than 64, an empty text.
  nlohmann::json parse(std::string_view text, const std::string& file);

  /// ConfigError at the start of `value` (no line when it was parsed nowhere, e.g. a default).
  [[noreturn]] void fail(const nlohmann::json& value, const std::string& message) const;

  /// ConfigError at the key `key` of `object`.
  [[noreturn]] void fail_at_key(const nlohmann::json& object, std::string_view key,
                                const std::string& message) const;

 private:
  struct Text {
    std::string file;
    size_t base;  ///< offset of its first byte
  };
  [[noreturn]] void fail_at(size_t offset, const std::string& message) const;

  std::string all_;  ///< every text, one after the other
  std::vector<Text> texts_;
};

}  // namespace harness
