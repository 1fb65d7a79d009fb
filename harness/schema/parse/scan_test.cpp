#include "harness/schema/parse/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/schema/example.h"
#include "harness/schema/reference.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> keys_of(std::string_view text) {
  std::vector<std::string> names;
  for (const KeyToken& key : scan_json(text, 64).keys) names.push_back(key.name);
  return names;
}

TEST(Scan, KeysAreWhatStandsBeforeAColonInAnObject) {
  EXPECT_THAT(keys_of(R"({"a": "b", "c" : {"d": ["e", {"f": 1}]}})"),
              ElementsAre("a", "c", "d", "f"));
  EXPECT_THAT(keys_of(R"(["a", "b"])"), ElementsAre());
  EXPECT_THAT(keys_of("{\"a\" /* : */ : 1, // \"x\": 2\n \"b\"\t:2}"), ElementsAre("a", "b"));
}

TEST(Scan, KeysAreDecodedSoThatNoDuplicateHides) {
  EXPECT_THAT(keys_of(R"({"\u0061": 1, "a\"b": 2})"), ElementsAre("a", "a\"b"));
}

TEST(Scan, PlacesAreThoseOfTheText) {
  const JsonScan scan = scan_json(R"( {"a": {"b": 1}})", 64);
  ASSERT_EQ(scan.keys.size(), 2U);
  EXPECT_EQ(scan.keys[0].object, 1U);
  EXPECT_EQ(scan.keys[0].offset, 2U);
  EXPECT_EQ(scan.keys[1].object, 7U);
}

TEST(Scan, DepthIsBounded) {
  EXPECT_FALSE(scan_json("[[[]]]", 3).too_deep);
  EXPECT_EQ(scan_json("[[[]]]", 2).too_deep, 2U);
  EXPECT_EQ(scan_json(std::string(1 << 20, '['), 64).too_deep, 64U);
}

TEST(Scan, TextThatIsNoJsonIsWalkedWithoutHarm) {
  for (const char* text :
       {"", "\"", "\"\\", "{\"a", "/*", "//", "/", "}}]]", "{\"a\"", "{:}", "{\"a\"/", "\xff\xfe{"})
    scan_json(text, 4);
}

TEST(Reference, OneRowAFieldAndOneTableAStruct) {
  const std::string page = reference_page<Example>("example");
  EXPECT_THAT(page, HasSubstr("# example\n\n## example\n"));
  EXPECT_THAT(page, HasSubstr("| `title` | string | required |  | shown first |"));
  EXPECT_THAT(page, HasSubstr("| `count` | integer | `7` | count | how many |"));
  EXPECT_THAT(page, HasSubstr("| `colour` | one of red green | `\"red\"` |"));
  EXPECT_THAT(page, HasSubstr("| `bound` | number or null | `null` |"));
  EXPECT_THAT(page, HasSubstr("## example.parts[]"));
  EXPECT_THAT(page, HasSubstr("share \\| part")) << "a bar must not end the cell";
}

}  // namespace
}  // namespace harness
