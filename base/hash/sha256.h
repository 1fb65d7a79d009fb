#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace base {

/// SHA-256 (FIPS 180-4) of bytes that come in pieces; OpenSSL's, which has the processor's own
/// instructions for it: each run hashes the gigabyte of LibTorch that its workers load.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const uint8_t> bytes);
  void update(std::string_view text);
  /// Lower-case hex; the object is used up.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Lower-case hex SHA-256 of `bytes`.
std::string sha256_hex(std::span<const uint8_t> bytes);
std::string sha256_hex(std::string_view bytes);

/// Lower-case hex SHA-256 of a file's bytes, read in pieces. Throws std::runtime_error naming
/// the path when it cannot be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace base
