#include "harness/evidence/storage/xz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/storage/testing.h"

namespace harness {
namespace {

using testing::HasSubstr;

std::string records(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += R"({"step": )" + std::to_string(i * i) + "}\n";
  return text;
}

TEST(Xz, RoundTripKeepsEveryByteAndIsDeterministic) {
  for (const std::string& text :
       {std::string(), std::string("a\0b", 3), records(40000), std::string(1 << 20, '\0')}) {
    const std::string packed = xz(text);
    EXPECT_TRUE(is_xz(packed));
    EXPECT_EQ(packed, xz(text));
    EXPECT_EQ(unxz(packed, "x"), text);
  }
  EXPECT_LT(xz(records(40000)).size(), gzip(records(40000)).size());
}

TEST(Xz, TheSystemsXzReadsIt) {
  const TempDir dir;
  write_bytes(dir / "x.xz", xz("hello\n"));
  EXPECT_EQ(std::system(("cd " + dir.path().string() + " && xz -t x.xz").c_str()), 0);
}

TEST(Xz, DamageIsNamed) {
  const std::string packed = xz(records(1000));
  const auto refusal = [](const std::string& bytes, uint64_t limit = kMaxUnpacked) {
    return error_of([&] { unxz(bytes, "evidence.tar.xz", limit); });
  };
  EXPECT_THAT(refusal(packed.substr(0, packed.size() / 2)), HasSubstr("cut off"));
  EXPECT_THAT(refusal(packed.substr(0, packed.size() - 1)), HasSubstr("cut off"));
  EXPECT_THAT(refusal(""), HasSubstr("cut off"));
  EXPECT_THAT(refusal("no archive at all"), HasSubstr("damaged"));
  EXPECT_THAT(refusal(packed + "x"), HasSubstr("behind its end"));
  EXPECT_THAT(refusal(packed, 100), HasSubstr("more than"));
  std::string changed = packed;
  changed[packed.size() / 2] = static_cast<char>(changed[packed.size() / 2] ^ 1);
  EXPECT_THAT(refusal(changed), HasSubstr("evidence.tar.xz: is no whole xz archive"));
}

}  // namespace
}  // namespace harness
