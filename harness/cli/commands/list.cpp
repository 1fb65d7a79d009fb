#include <cstdio>

#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/evidence/storage/plain_text.h"
#include "harness/runbook/load.h"

namespace harness::cli {
namespace {

nlohmann::json describe(const Runbook& book) {
  nlohmann::json phases = nlohmann::json::array();
  for (const PhaseSpec& phase : book.phases) phases.push_back(phase.id);
  return {{"name", book.name},
          {"title", book.title},
          {"device", book.device},
          {"hardware", book.hardware},
          {"phases", phases}};
}

void print(const Runbook& book) {
  std::printf("%-14s %s\n", book.name.c_str(), plain_text(book.title).c_str());
  std::printf("%-14s device %s%s%s; phases:", "", book.device.c_str(),
              book.hardware.empty() ? "" : ", expects ", book.hardware.c_str());
  for (const PhaseSpec& phase : book.phases) std::printf(" %s", phase.id.c_str());
  std::printf("\n");
}

}  // namespace

int list_command(const Options& options) {
  const auto configs = configs_dir(options.configs);
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& name : list_runbooks(configs)) {
    const Runbook book = load_runbook(name, configs).runbook;
    if (options.json) {
      all.push_back(describe(book));
    } else {
      print(book);
    }
  }
  if (options.json) std::printf("%s\n", all.dump(2).c_str());
  return 0;
}

}  // namespace harness::cli
