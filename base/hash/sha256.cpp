#include "base/hash/sha256.h"

#include <array>
#include <fstream>
#include <stdexcept>

namespace base {

Sha256::Sha256() { crypto_hash_sha256_init(&state_); }

void Sha256::update(std::span<const uint8_t> bytes) {
  crypto_hash_sha256_update(&state_, bytes.data(), bytes.size());
}

void Sha256::update(std::string_view text) {
  update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

std::string Sha256::hex() {
  std::array<uint8_t, crypto_hash_sha256_BYTES> digest;
  crypto_hash_sha256_final(&state_, digest.data());
  std::string hex(2 * digest.size() + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), digest.data(), digest.size());
  hex.pop_back();
  return hex;
}

std::string sha256_hex(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    throw std::runtime_error("cannot read " + path.string() +
                             " to hash it; check that it exists and is readable");
  Sha256 hash;
  std::array<char, 1 << 16> piece;  // on the stack: a run hashes thousands of small files
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    hash.update(std::string_view(piece.data(), static_cast<size_t>(in.gcount())));
  if (in.bad()) throw std::runtime_error("reading " + path.string() + " failed before its end");
  return hash.hex();
}

}  // namespace base
