#pragma once
#include <sodium.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace nsa::train {

/// SHA-256 of bytes that come in pieces.
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

/// Lower-case hex SHA-256 of a file's bytes, read in pieces. Throws InputError if it cannot be
/// read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace nsa::train
