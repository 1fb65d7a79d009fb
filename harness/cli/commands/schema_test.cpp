#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "harness/cli/commands/commands.h"
#include "harness/cli/testing.h"
#include "harness/evidence/storage/files.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

TEST(SchemaCommand, PrintsWhatIsCommitted) {
  for (const char* name : {"runbook", "results"}) {
    Options options;
    options.name = name;
    const std::string committed =
        read_bytes(shipped_configs() + "/schema/" + name + ".schema.json");
    EXPECT_EQ(nlohmann::json::parse(printed(schema_command, options).out),
              nlohmann::json::parse(committed))
        << name;
  }
}

TEST(SchemaCommand, ThePageIsMarkdown) {
  Options options;
  options.name = "runbook";
  options.page = true;
  EXPECT_THAT(printed(schema_command, options).out, HasSubstr("| key | type | default |"));
}

TEST(SchemaCommand, AnUnknownDocumentNamesTheNearest) {
  Options options;
  options.name = "runbok\x1b";
  try {
    printed(schema_command, options);
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(), "unknown document 'runbok\\x1b'; did you mean 'runbook'?");
  }
}

}  // namespace
}  // namespace harness::cli
