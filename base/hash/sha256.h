#pragma once
#include <sodium.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace base {

/// SHA-256 (FIPS 180-4) of bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const uint8_t> bytes);
  void update(std::string_view text);
  /// Lower-case hex; the object is used up.
  std::string hex();

 private:
  crypto_hash_sha256_state state_;
};

/// Lower-case hex SHA-256 of `bytes`.
std::string sha256_hex(std::span<const uint8_t> bytes);
std::string sha256_hex(std::string_view bytes);

/// Lower-case hex SHA-256 of a file's bytes, read in pieces. Throws std::runtime_error naming
/// the path when it cannot be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace base
