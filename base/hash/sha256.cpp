#include "base/hash/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <stdexcept>

namespace base {
namespace {

void require(int done) {
  if (done != 1) throw std::runtime_error("SHA-256: OpenSSL could not go on; is memory left?");
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  // No configuration of the machine's: a hash is the same everywhere.
  static const int ready = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  require(ready);
  require(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const uint8_t> bytes) {
  require(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

void Sha256::update(std::string_view text) {
  update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

std::string Sha256::hex() {
  std::array<uint8_t, 32> digest;
  require(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
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
