#include <cstdio>
#include <functional>
#include <map>

#include "harness/cli/commands.h"
#include "harness/results/results.h"
#include "harness/runbook/runbook.h"
#include "harness/schema/error.h"
#include "harness/schema/json_schema.h"
#include "harness/schema/reference.h"
#include "harness/schema/write.h"

namespace harness::cli {
namespace {

struct Described {
  std::function<nlohmann::json()> schema;
  std::function<std::string()> page;
};

const std::map<std::string, Described> kSchemas = {
    {"runbook", {[] { return extendable_json_schema<Runbook>("nsa-validate runbook"); },
                 [] { return reference_page<Runbook>("runbook"); }}},
    {"kind", {[] { return json_schema<KindSpec>("nsa-validate phase kind"); },
              [] { return reference_page<KindSpec>("kind"); }}},
    {"results", {[] { return json_schema<Results>("nsa-validate results"); },
                 [] { return reference_page<Results>("results"); }}},
};

}  // namespace

int schema_command(const Options& options) {
  const auto found = kSchemas.find(options.name);
  if (found == kSchemas.end())
    throw ConfigError("unknown schema '" + options.name + "'; known: kind, results, runbook");
  if (options.page) {
    std::printf("%s", found->second.page().c_str());
  } else {
    std::printf("%s", pretty_dump(found->second.schema()).c_str());
  }
  return 0;
}

}  // namespace harness::cli
