#include "harness/provenance/environment.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/hash/sha256.h"
#include "harness/provenance/allocation.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/build/git.h"
#include "harness/provenance/build/libraries.h"
#include "harness/provenance/capture.h"
#include "harness/provenance/gpu/gpu.h"
#include "harness/provenance/machine.h"

namespace harness {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

using Facts = std::map<std::string, json>;

json git_json(const std::optional<fs::path>& checkout) {
  GitFacts none;
  none.problem = "no checkout above the program or the working directory";
  return to_json(checkout ? git_facts(*checkout) : none);
}

json build_json(const std::optional<fs::path>& checkout) {
  const std::optional<BuildId> built = read_build_id(program_folder());
  json value = {{"build_id", built ? json(built->id) : json()},
                {"compiler", built ? json(built->compiler) : json()},
                {"flags", built ? json(built->flags) : json()},
                {"check", to_json(check_build_id(program_folder(), checkout))}};
  return value;
}

/// Thresholds and settings lie outside the build id. The hash is that of the lines of sha256sum:
/// `cd configs && find * -type f ! -name '*.part' | LC_ALL=C sort | xargs sha256sum | sha256sum`.
json configs_json(const fs::path& folder) {
  if (folder.empty()) return nullptr;
  std::string lines;
  const FileHashes files = hash_files(folder);
  for (const auto& [path, hash] : files) lines += hash + "  " + path + "\n";
  return {{"sha256", base::sha256_hex(lines)}, {"files", files.size()}};
}

/// First line of `PROGRAM --version`; null when there is no such program.
json version_of(const std::string& program) {
  const Captured version = capture({program, "--version"});
  return version.ok() ? json(version.out.substr(0, version.out.find('\n'))) : json();
}

void add_gpu_facts(const GpuList& list, bool cupti, Facts& facts) {
  facts["gpu.count"] = list.gpus.size();
  facts["cupti.ok"] = cupti && !list.gpus.empty();
  if (list.gpus.empty()) return;
  std::set<std::string> names;
  double cc = 1e9;
  int64_t free_mib = list.gpus[0].memory_free_mib;
  for (const GpuFacts& gpu : list.gpus) {
    names.insert(gpu.name);
    cc = std::min(cc, gpu.cc.empty() ? 0.0 : std::stod(gpu.cc));
    free_mib = std::min(free_mib, gpu.memory_free_mib);
  }
  if (names.size() == 1) facts["gpu.sku"] = *names.begin();
  facts["gpu.cc"] = cc;
  facts["gpu.free_mib"] = free_mib;
  facts["gpu.exclusive"] = std::all_of(list.gpus.begin(), list.gpus.end(),
                                       [](const GpuFacts& gpu) { return gpu.exclusive(); });
}

void add_data_facts(const fs::path& data, Facts& facts) {
  std::error_code error;
  for (const auto& item : fs::directory_iterator(data, error))
    if (fs::exists(item.path() / "manifest.json", error))
      facts["data." + item.path().filename().string()] = true;
}

void add_program_facts(Facts& facts) {
  for (const char* name :
       {"nsa-worker", "nsa-train", "nsa-data", "nsa-tests", "nsa-bench", "nsa-eval"})
    facts[std::string("program.") + name] = fs::exists(program_folder() / name);
}

}  // namespace

json environment(const EnvironmentRequest& request) {
  const auto checkout = this_checkout();
  const json variables = environment_variables();
  json disk = disk_facts(request.out);
  disk.erase("path");  // a name of this machine, and no fact about it
  return {{"machine", machine_facts()},
          {"disk", disk},
          {"gpu", to_json(list_gpus())},
          {"git", git_json(checkout)},
          {"build", build_json(checkout)},
          {"configs", configs_json(request.configs)},
          {"tools", {{"git", version_of("git")}, {"gnuplot", version_of("gnuplot")}}},
          {"libraries", {{"libtorch", libtorch_version()}}},
          {"switches", variables["effective"]},
          {"foreign_variables", variables["foreign"]},
          {"seed", request.seed},
          {"command_line", request.command_line}};
}

Facts facts(fs::path data_folder) {
  const auto checkout = this_checkout();
  Facts facts;
  add_gpu_facts(list_gpus(), find_library("libcupti.so.13", "nvidia/cu13/lib").has_value(), facts);
  if (data_folder.empty()) data_folder = checkout.value_or(fs::current_path()) / ".data";
  add_data_facts(data_folder, facts);
  facts["slurm.nodes"] = allocated_nodes().size();
  add_program_facts(facts);
  facts["git.checkout"] = checkout && git_facts(*checkout).known;
  return facts;
}

}  // namespace harness
