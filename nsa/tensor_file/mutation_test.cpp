// Files damaged at random: every one is either refused with a TensorFileError or read as tensors
// whose bytes fit their shapes. Under the sanitizers this also shows reads out of bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "nsa/tensor_file/tensor_file.h"

namespace nsa::tensor_file {
namespace {

using ::testing::HasSubstr;

constexpr unsigned kSeed = 20260701;
constexpr int kFiles = 2000;

std::filesystem::path path_for(const char* name) {
  return std::filesystem::path(::testing::TempDir()) / name;
}

std::string sample_bytes() {
  TensorFile file;
  file.metadata = {{"config", R"({"kind": "forward", "B": 1})"}, {"note", "x"}};
  file.tensors["q"] = from_doubles({2, 3}, {1, 2, 3, 4, 5, 6}, Dtype::kF64);
  file.tensors["half"] = from_doubles({3}, {1, 2, 3}, Dtype::kF16);
  file.tensors["ids"] = from_integers({2, 2}, {1, 2, 3, 4}, Dtype::kI32);
  file.tensors["none"] = from_doubles({0, 4}, {}, Dtype::kBF16);
  const auto path = path_for("mutation_sample.safetensors");
  write_tensor_file(path, file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

using Random = std::mt19937;

size_t below(Random& random, size_t end) {
  return std::uniform_int_distribution<size_t>(0, end - 1)(random);
}

void flip_bit(std::string& bytes, Random& random) {
  char& byte = bytes[below(random, bytes.size())];
  byte = static_cast<char>(byte ^ (1 << below(random, 8)));
}

/// Puts a piece of JSON, a number at the edge of a type or bytes that are no text into the header.
void insert_piece(std::string& bytes, Random& random) {
  static const std::vector<std::string> pieces = {"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  "\"",
                                                  ",",
                                                  ":",
                                                  "-1",
                                                  "1e9",
                                                  "null",
                                                  "1.5",
                                                  "\\u0",
                                                  "\xff",
                                                  "\xc3",
                                                  "[[[[",
                                                  "0",
                                                  "\"q\":{},",
                                                  "4294967296",
                                                  "18446744073709551615",
                                                  "9223372036854775807"};
  const std::string& piece = pieces[below(random, pieces.size())];
  const size_t at = 8 + below(random, bytes.size() - 8);
  if (below(random, 2) == 0)
    bytes.insert(at, piece);
  else
    bytes.replace(at, std::min(piece.size(), bytes.size() - at), piece);
}

/// Another header size, near the true one or anywhere.
void change_size(std::string& bytes, Random& random) {
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  size = below(random, 2) == 0 ? size + below(random, 33) - 16
                               : uint64_t{random()} << below(random, 40);
  std::memcpy(bytes.data(), &size, 8);
}

/// A number of the header gets another digit, so that offsets and shapes disagree.
void change_digit(std::string& bytes, Random& random) {
  for (int tries = 0; tries < 100; ++tries) {
    char& byte = bytes[8 + below(random, bytes.size() - 8)];
    if (byte < '0' || byte > '9') continue;
    byte = static_cast<char>('0' + below(random, 10));
    return;
  }
}

void mutate(std::string& bytes, Random& random) {
  const size_t steps = 1 + below(random, 3);
  for (size_t step = 0; step < steps && bytes.size() > 16; ++step) {
    const size_t which = below(random, 6);
    if (which == 0) flip_bit(bytes, random);
    if (which == 1) insert_piece(bytes, random);
    if (which == 2) change_size(bytes, random);
    if (which == 3) change_digit(bytes, random);
    if (which == 4) bytes.resize(below(random, bytes.size()));
    if (which == 5) bytes.append(below(random, 20), '\0');
  }
}

std::string outcome_of(const std::filesystem::path& path) {
  try {
    for (const auto& [name, tensor] : read_tensor_file(path).tensors) {
      EXPECT_EQ(tensor.bytes.size(), static_cast<size_t>(tensor.numel()) * size_bytes(tensor.dtype))
          << name;
      to_doubles(tensor);
    }
  } catch (const TensorFileError& error) {
    return error.what();
  }
  return "";
}

TEST(TensorFileMutation, DamagedFilesAreRefusedOrWhole) {
  std::printf("seed %u, %d files\n", kSeed, kFiles);
  const std::string whole = sample_bytes();
  const auto path = path_for("mutated.safetensors");
  Random random(kSeed);
  int refused = 0;
  for (int i = 0; i < kFiles; ++i) {
    std::string bytes = whole;
    mutate(bytes, random);
    std::ofstream(path, std::ios::binary) << bytes;
    const std::string error = outcome_of(path);
    if (error.empty()) continue;
    ++refused;
    ASSERT_THAT(error, HasSubstr("mutated.safetensors: ")) << "file " << i;
    ASSERT_LT(error.size(), 1000u) << "file " << i;
  }
  // Most damage must show; damage to values and to white space cannot.
  EXPECT_GT(refused, kFiles / 2);
  EXPECT_LT(refused, kFiles);
}

std::string error_of_header(const std::string& header) {
  const auto path = path_for("deep.safetensors");
  std::ofstream out(path, std::ios::binary);
  const uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << header;
  out.close();
  return outcome_of(path);
}

TEST(TensorFileMutation, DeepNestingAndLongTextsStayShort) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(error_of_header(R"({"a": {"dtype": "U8", "shape": )" + deep),
              HasSubstr("header must nest at most 3 levels deep"));
  EXPECT_THAT(error_of_header("{\"a\": " + deep + std::string(deep.size(), ']') + "}"),
              HasSubstr("header must nest at most 3 levels deep"));
  const std::string name(1'000'000, 'n');
  const std::string error = error_of_header("{\"" + name + "\": 1}");
  EXPECT_THAT(error, HasSubstr("nnn...': must be an object"));
  EXPECT_LT(error.size(), 1000u);
  EXPECT_THAT(error_of_header("{\"\xff\": 1}"), HasSubstr("header is not JSON"));
}

}  // namespace
}  // namespace nsa::tensor_file
