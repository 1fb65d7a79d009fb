#include "harness/evidence/storage/sha256.h"

#include <sodium.h>

#include <array>
#include <fstream>

#include "harness/schema/error.h"

namespace harness {
namespace {

using Digest = std::array<unsigned char, crypto_hash_sha256_BYTES>;

std::string hex(const Digest& digest) {
  std::array<char, 2 * crypto_hash_sha256_BYTES + 1> text;
  sodium_bin2hex(text.data(), text.size(), digest.data(), digest.size());
  return text.data();
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Digest digest;
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size());
  return hex(digest);
}

std::string sha256_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    throw Error("cannot read " + path.string() +
                " to hash it; check that it exists and is readable");
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  std::array<char, 65536> buffer;
  while (in.read(buffer.data(), buffer.size()), in.gcount() > 0)
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(buffer.data()),
                              static_cast<unsigned long long>(in.gcount()));
  if (in.bad()) throw Error("reading " + path.string() + " failed before its end");
  Digest digest;
  crypto_hash_sha256_final(&state, digest.data());
  return hex(digest);
}

}  // namespace harness
