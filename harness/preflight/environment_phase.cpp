#include <algorithm>

#include "harness/phases/builtin_phases.h"
#include "harness/preflight/leftovers.h"
#include "harness/preflight/switches.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/build/git.h"
#include "harness/provenance/gpu/gpu.h"

namespace harness {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

class EnvironmentPhase {
 public:
  EnvironmentPhase(const fs::path& bin_dir, const std::optional<fs::path>& checkout,
                   const BuiltinCall& call, base::protocol::Emitter& emitter)
      : bin_dir_(bin_dir),
        device_(call.in.device),
        case_(call.in.cases.front().id),
        emitter_(emitter),
        run_(call.run_dir),
        checkout_(checkout) {}

  void run() {
    build();
    git();
    switches();
    leftovers();
    if (device_ != "cpu") gpus();
    emitter_.end_case(case_);
  }

 private:
  void metric(const std::string& name, const json& value, const std::string& unit,
              const std::string& reason = "") {
    emitter_.metric(
        {.case_id = case_, .name = name, .value = value, .unit = unit, .reason = reason});
  }

  void check(const std::string& id, bool ok, const std::string& code, const std::string& detail) {
    emitter_.check(
        {.case_id = case_, .id = id, .ok = ok, .code = ok ? "" : code, .detail = detail});
  }

  void build() {
    build_ = check_build_id(bin_dir_, checkout_);
    // Without a checkout there are no files to differ from: the programs are those of the record,
    // which names the commit.
    const bool ok = build_.equal || build_.installed;
    check("build.id", ok, "PROVENANCE_MISMATCH", build_.problem);
    metric("build.id_matches_bool", ok, "bool");
  }

  void git() {
    const GitFacts facts = checkout_ ? git_facts(*checkout_) : GitFacts{};
    const auto built = read_build_id(bin_dir_);
    // A copy of the checkout without its history is the recorded commit when its files are those of
    // the build.
    const bool recorded =
        !facts.known && built && !built->commit.empty() && (build_.equal || build_.installed);
    metric("git.commit_known_bool", facts.known || recorded, "bool");
    if (!facts.known && !recorded)
      return metric("git.dirty_count", nullptr, "count",
                    "neither git nor a fitting build_id.json knows the commit");
    const std::vector<std::string>& dirty = facts.known ? facts.dirty : built->dirty;
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(dirty.size(), 10); ++i)
      names += (i ? ", " : "") + dirty[i];
    check("git.clean", dirty.empty(), "PROVENANCE_MISMATCH",
          dirty.empty() ? "" : "files differ from the commit: " + names);
    metric("git.dirty_count", dirty.size(), "count");
  }

  void switches() {
    const SwitchNames names = ask_switch_names(bin_dir_);
    if (!names.problem.empty())
      return metric("switches.unknown_count", nullptr, "count", names.problem);
    int64_t unknown = 0;
    for (const EnvironmentSwitch& each : check_environment_switches(names.known)) {
      unknown += !each.problem.empty();
      check("switches." + each.name, each.problem.empty(), "CONFIG_ERROR", each.problem);
    }
    metric("switches.unknown_count", unknown, "count");
  }

  void leftovers() {
    const std::string found = stale_leftovers(run_);
    check("machine.leftovers", found.empty(), "STALE_LEFTOVERS", found);
  }

  /// By NVML. Where the driver hides other processes, the memory in use stands for them: this
  /// process holds none.
  void gpus() {
    const GpuList list = list_gpus();
    const std::string held = list.gpus.empty() ? "no GPU: " + list.problem : held_text(list);
    check("gpu.free", held.empty(), "GPU_NOT_FREE", held);
    if (list.gpus.empty()) {
      metric("gpu.free_bool", nullptr, "bool", held);
      return metric("gpu.foreign_mib", nullptr, "mib", held);
    }
    int64_t foreign = 0;
    for (const GpuFacts& gpu : list.gpus) foreign = std::max(foreign, gpu.foreign_mib());
    metric("gpu.free_bool", held.empty(), "bool");
    metric("gpu.foreign_mib", foreign, "mib");
  }

  fs::path bin_dir_;
  std::string device_, case_;
  base::protocol::Emitter& emitter_;
  fs::path run_;
  std::optional<fs::path> checkout_;
  BuildIdCheck build_;
};

}  // namespace

void run_environment(const fs::path& bin_dir, const std::optional<fs::path>& checkout,
                     const BuiltinCall& call, base::protocol::Emitter& emitter) {
  EnvironmentPhase(bin_dir, checkout, call, emitter).run();
}

}  // namespace harness
