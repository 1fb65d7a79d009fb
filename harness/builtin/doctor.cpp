#include "harness/builtin/doctor.h"

#include <unistd.h>

#include <algorithm>

#include "harness/builtin/leftovers.h"
#include "harness/provenance/build_id.h"
#include "harness/provenance/capture.h"
#include "harness/provenance/environment.h"
#include "harness/provenance/git.h"
#include "harness/provenance/gpu.h"
#include "harness/provenance/libraries.h"
#include "harness/provenance/machine.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

using State = DoctorRow::State;
constexpr int64_t kWantDiskMib = 2048, kWantMemoryMib = 4096;

DoctorRow row(bool ok, State otherwise, const std::string& what, const std::string& found,
              const std::string& remedy) {
  return {ok ? State::kOk : otherwise, what, found, ok ? "" : remedy};
}

DoctorRow compiler() {
  const Captured said = capture({"g++", "--version"});
  return row(said.ok(), State::kWarning, "compiler",
             said.ok() ? said.out.substr(0, said.out.find('\n')) : "no g++",
             "tools/setup installs it; needed to build, not to run");
}

DoctorRow disk(const fs::path& out) {
  const auto facts = disk_facts(out);
  const int64_t free = facts["free_mib"].is_null() ? 0 : facts["free_mib"].get<int64_t>();
  return row(free >= kWantDiskMib, State::kProblem, "disk space",
             std::to_string(free) + " MiB free at " + facts["path"].get<std::string>(),
             "free " + std::to_string(kWantDiskMib) + " MiB, or give --out on another disk");
}

DoctorRow writable(const fs::path& out) {
  const auto facts = disk_facts(out);
  return row(facts["writable"].get<bool>(), State::kProblem, "output folder",
             facts["path"].get<std::string>(), "give --out a folder you may write");
}

DoctorRow memory() {
  const auto facts = machine_facts();
  const int64_t mib =
      facts["memory_available_mib"].is_null() ? 0 : facts["memory_available_mib"].get<int64_t>();
  return row(mib >= kWantMemoryMib, State::kWarning, "memory",
             std::to_string(mib) + " MiB available", "close other programs");
}

void gpus(std::vector<DoctorRow>& rows) {
  const GpuList list = list_gpus();
  rows.push_back(row(list.nvml, State::kWarning, "driver",
                     list.nvml ? list.driver + ", CUDA " + list.cuda : list.problem,
                     "runbooks on the CPU run all the same"));
  for (const GpuFacts& gpu : list.gpus) {
    std::string text = gpu.name + ", " + std::to_string(gpu.memory_free_mib) + " of " +
                       std::to_string(gpu.memory_total_mib) + " MiB free";
    for (const GpuProcess& p : gpu.processes)
      text += ", pid " + std::to_string(p.pid) + " " + p.name;
    if (!gpu.processes_problem.empty()) text += " (" + gpu.processes_problem + ")";
    rows.push_back(row(gpu.exclusive(), State::kWarning, "GPU " + std::to_string(gpu.index), text,
                       "end the other processes: measured figures would be theirs too"));
  }
}

DoctorRow programs(const fs::path& bin_dir) {
  std::string missing;
  for (const char* name : {"nsa-worker", "nsa-train", "nsa-data"})
    if (!fs::exists(bin_dir / name)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  return row(missing.empty(), State::kProblem, "programs",
             missing.empty() ? "all beside this one" : "missing: " + missing,
             "build the default target");
}

DoctorRow build(const fs::path& bin_dir) {
  const BuildIdCheck check = check_build_id(bin_dir, this_checkout());
  const bool ok = check.equal || check.installed;
  return row(
      ok, State::kProblem, "build id",
      check.problem.empty() ? check.built.substr(0, 12) + ", equal to the checkout" : check.problem,
      "build again");
}

DoctorRow data() {
  std::string names;
  for (const auto& [name, value] : facts())
    if (name.starts_with("data.")) names += (names.empty() ? "" : ", ") + name.substr(5);
  return row(!names.empty(), State::kWarning, "data",
             names.empty() ? "no corpus with a manifest" : names,
             "nsa-data makes token shards from the text that tools/setup brings");
}

DoctorRow leftovers(const fs::path& out) {
  const std::string both = stale_leftovers(out);
  return row(both.empty(), State::kWarning, "leftovers",
             both.empty() ? "none" : "STALE_LEFTOVERS: " + both,
             "end these processes and remove these files, unless a run is going on");
}

}  // namespace

std::vector<DoctorRow> doctor(const fs::path& out, const fs::path& bin_dir) {
  std::vector<DoctorRow> rows = {compiler(), memory(), disk(out), writable(out)};
  gpus(rows);
  const bool torch = find_library("libtorch_cpu.so", "torch/lib").has_value();
  rows.push_back(row(torch, State::kProblem, "LibTorch", torch ? "found" : "not found",
                     "tools/setup installs it into .venv"));
  rows.push_back(programs(bin_dir));
  rows.push_back(build(bin_dir));
  rows.push_back(data());
  rows.push_back(leftovers(out));
  return rows;
}

int doctor_exit(const std::vector<DoctorRow>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const DoctorRow& r) { return r.state == State::kProblem; })
             ? 3
             : 0;
}

}  // namespace harness
