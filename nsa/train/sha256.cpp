#include "nsa/train/sha256.h"

#include <sodium.h>

#include <array>
#include <fstream>
#include <vector>

#include "nsa/model/input_error.h"

namespace nsa::train {
namespace {

std::string to_hex(const std::array<uint8_t, crypto_hash_sha256_BYTES>& digest) {
  std::string hex(2 * digest.size() + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), digest.data(), digest.size());
  hex.pop_back();
  return hex;
}

}  // namespace

std::string sha256_hex(std::span<const uint8_t> bytes) {
  std::array<uint8_t, crypto_hash_sha256_BYTES> digest;
  crypto_hash_sha256(digest.data(), bytes.data(), bytes.size());
  return to_hex(digest);
}

std::string sha256_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError("cannot read " + path.string());
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::vector<char> piece(1 << 20);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    crypto_hash_sha256_update(&state, reinterpret_cast<const uint8_t*>(piece.data()),
                              static_cast<uint64_t>(in.gcount()));
  if (in.bad()) throw InputError("reading " + path.string() + " failed");
  std::array<uint8_t, crypto_hash_sha256_BYTES> digest;
  crypto_hash_sha256_final(&state, digest.data());
  return to_hex(digest);
}

}  // namespace nsa::train
