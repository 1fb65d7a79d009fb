#include "harness/evidence/storage/sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/storage/testing.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using testing::HasSubstr;

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

/// A file is read in pieces of 65536 bytes: sizes around them, and none.
TEST(Sha256, AFileHasTheHashOfItsBytes) {
  const TempDir dir;
  for (const size_t size : {0UL, 1UL, 65535UL, 65536UL, 65537UL, 131072UL, 200000UL}) {
    std::string bytes(size, 'x');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
    std::ofstream(dir / "f", std::ios::binary) << bytes;
    EXPECT_EQ(sha256_file(dir / "f"), sha256_hex(bytes)) << size;
  }
}

TEST(Sha256, WhatCannotBeReadIsNamed) {
  const TempDir dir;
  EXPECT_THAT(error_of([&] { sha256_file(dir / "none"); }),
              HasSubstr("cannot read " + (dir / "none").string()));
  EXPECT_THAT(error_of([&] { sha256_file(dir.path()); }),
              HasSubstr("cannot read " + dir.path().string()));
}

}  // namespace
}  // namespace harness
