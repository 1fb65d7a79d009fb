#include <cstdio>

#include "harness/cli/commands/commands.h"
#include "harness/runbook/documents.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/write.h"

namespace harness::cli {

int schema_command(const Options& options) {
  const auto found = documents().find(options.name);
  if (found == documents().end()) {
    std::vector<std::string> names;
    for (const auto& [name, document] : documents()) names.push_back(name);
    throw ConfigError("unknown document " + in_quotes(options.name) +
                      did_you_mean(options.name, names));
  }
  const DocumentKind& document = found->second;
  std::printf("%s",
              options.page ? document.reference.c_str() : pretty_dump(document.schema).c_str());
  return 0;
}

}  // namespace harness::cli
