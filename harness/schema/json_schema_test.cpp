#include "harness/schema/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/schema/example.h"
#include "harness/schema/reference.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(JsonSchema, ReportsWhatTheReaderAccepts) {
  const json schema = json_schema<Example>("example");
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["required"], json::array({"title"}));
  const json& properties = schema["properties"];
  EXPECT_EQ(properties.size(), 8u);
  EXPECT_EQ(properties["colour"]["enum"], json::array({"red", "green"}));
  EXPECT_EQ(properties["count"]["default"], 7);
  EXPECT_EQ(properties["count"]["unit"], "count");
  EXPECT_EQ(properties["count"]["description"], "how many");
  EXPECT_EQ(properties["parts"]["items"]["required"], json::array({"id"}));
  EXPECT_EQ(properties["labels"]["additionalProperties"]["type"], "string");
  EXPECT_EQ(properties["bound"]["anyOf"][1]["type"], "null");
}

TEST(JsonSchema, ExtendingDocumentsNeedOnlyWhatIdentifies) {
  const json schema = extendable_json_schema<Example>("example");
  EXPECT_EQ(schema["then"]["required"], json::array());
  EXPECT_EQ(schema["then"]["properties"]["parts"]["items"]["required"], json::array({"id"}));
  EXPECT_EQ(schema["else"]["required"], json::array({"title"}));
}

TEST(ReferencePage, HoldsOneTableAStruct) {
  const std::string page = reference_page<Example>("example");
  EXPECT_THAT(page, HasSubstr("| `title` | string | required |  | shown first |"));
  EXPECT_THAT(page, HasSubstr("| `colour` | one of red green | `\"red\"` |  | red or green |"));
  EXPECT_THAT(page, HasSubstr("| `parts` | list of object | `[]` |  | what it holds |"));
  EXPECT_THAT(page, HasSubstr("## example.parts[]\n"));
  EXPECT_THAT(page, HasSubstr("| `weight` | number | `0.5` | pct | share \\| part |"));
}

}  // namespace
}  // namespace harness
