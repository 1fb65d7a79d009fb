#include "harness/evidence/storage/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/storage/testing.h"

namespace harness {
namespace {

using testing::HasSubstr;

std::string text_of_lines(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "line " + std::to_string(i * i) + "\n";
  return text;
}

TEST(Gzip, RoundTripKeepsEveryByteAndIsDeterministic) {
  for (const std::string& text :
       {std::string(), std::string("a\0b", 3), text_of_lines(40000), std::string(1 << 20, '\0')}) {
    const std::string packed = gzip(text);
    EXPECT_TRUE(is_gzip(packed));
    EXPECT_EQ(packed, gzip(text));
    EXPECT_EQ(gunzip(packed, "x"), text);
  }
  EXPECT_LT(gzip(text_of_lines(40000)).size(), text_of_lines(40000).size() / 2);
}

TEST(Gzip, TheSystemsGzipReadsIt) {
  const TempDir dir;
  write_bytes(dir / "x.gz", gzip("hello\n"));
  EXPECT_EQ(std::system(("cd " + dir.path().string() + " && gzip -t x.gz").c_str()), 0);
}

TEST(Gzip, DamageIsNamed) {
  const std::string packed = gzip(text_of_lines(1000));
  const auto refusal = [](const std::string& bytes, uint64_t limit = kMaxUnpacked) {
    return error_of([&] { gunzip(bytes, "run.tar.gz", limit); });
  };
  EXPECT_THAT(refusal(packed.substr(0, packed.size() / 2)), HasSubstr("cut off"));
  EXPECT_THAT(refusal(packed.substr(0, packed.size() - 1)), HasSubstr("cut off"));
  EXPECT_THAT(refusal(""), HasSubstr("cut off"));
  EXPECT_THAT(refusal("no archive"), HasSubstr("damaged"));
  EXPECT_THAT(refusal(packed + "x"), HasSubstr("behind its end"));
  EXPECT_THAT(refusal(packed, 100), HasSubstr("more than"));
  std::string changed = packed;
  changed[packed.size() / 2] = static_cast<char>(changed[packed.size() / 2] ^ 1);
  EXPECT_THAT(refusal(changed), HasSubstr("run.tar.gz"));
}

}  // namespace
}  // namespace harness
