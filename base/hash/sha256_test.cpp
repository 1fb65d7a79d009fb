#include "base/hash/sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace base {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A folder of its own for the files of a test.
class Sha256File : public testing::Test {
 protected:
  Sha256File()
      : dir_(fs::path(testing::TempDir()) / ("base_sha256_" + std::to_string(::getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~Sha256File() override { fs::remove_all(dir_); }

  const fs::path dir_;
};

std::string refusal_of(const fs::path& path) {
  try {
    return sha256_file(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(Sha256, AgreesWithFips180Examples) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryByteCounts) {
  const std::string text("a\0b", 3);
  EXPECT_NE(sha256_hex(text), sha256_hex("a"));
  EXPECT_NE(sha256_hex(text), sha256_hex(std::string("a\0c", 3)));
  EXPECT_NE(sha256_hex("a\n"), sha256_hex("a\r\n"));
}

/// A file is read in pieces of 1 MiB: sizes around them, and none.
TEST_F(Sha256File, HasTheHashOfItsBytes) {
  for (const size_t size :
       {0UL, 1UL, 65536UL, 1048575UL, 1048576UL, 1048577UL, 2097152UL, 3000000UL}) {
    std::string bytes(size, 'x');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
    std::ofstream(dir_ / "f", std::ios::binary) << bytes;
    EXPECT_EQ(sha256_file(dir_ / "f"), sha256_hex(bytes)) << size;
  }
}

TEST_F(Sha256File, NamesAnUnreadableFile) {
  EXPECT_THAT(refusal_of(dir_ / "none"), HasSubstr("cannot read " + (dir_ / "none").string()));
  EXPECT_THAT(refusal_of(dir_), HasSubstr("cannot read " + dir_.string()));
}

TEST(Sha256, PiecesHaveTheHashOfTheWhole) {
  Sha256 hash;
  hash.update("a");
  hash.update(std::vector<uint8_t>{'b', 'c'});
  hash.update("");
  EXPECT_EQ(hash.hex(), sha256_hex("abc"));
  EXPECT_EQ(sha256_hex(std::vector<uint8_t>{'a', 'b', 'c'}), sha256_hex("abc"));
}

}  // namespace
}  // namespace base
