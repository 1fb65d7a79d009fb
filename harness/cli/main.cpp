#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "harness/cli/commands.h"
#include "harness/cli/options.h"
#include "harness/evidence/error.h"
#include "harness/schema/error.h"

namespace {

using harness::cli::Options;

const std::map<std::string, std::function<int(const Options&)>> kCommands = {
    {"run", harness::cli::run_command},       {"list", harness::cli::list_command},
    {"plan", harness::cli::plan_command},     {"doctor", harness::cli::doctor_command},
    {"verify", harness::cli::verify_command}, {"explain", harness::cli::explain_command},
    {"report", harness::cli::report_command}, {"bundle", harness::cli::bundle_command},
    {"schema", harness::cli::schema_command},
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int exit_code = 0;
  if (!harness::cli::parse_options(argc, argv, options, exit_code)) return exit_code;
  try {
    return kCommands.at(options.command)(options);
  } catch (const harness::ConfigError& e) {
    std::fprintf(stderr, "nsa-validate: %s\n", e.what());
    return 2;
  } catch (const harness::EvidenceError& e) {
    std::fprintf(stderr, "nsa-validate: %s\n", e.what());
    return 6;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nsa-validate: %s\n", e.what());
    return 3;
  }
}
