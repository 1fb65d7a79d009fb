#include "harness/preflight/doctor.h"

#include <unistd.h>

#include <algorithm>

#include "harness/phases/worker_call.h"
#include "harness/preflight/leftovers.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/build/git.h"
#include "harness/provenance/build/libraries.h"
#include "harness/provenance/capture.h"
#include "harness/provenance/environment.h"
#include "harness/provenance/gpu/gpu.h"
#include "harness/provenance/machine.h"
#include "harness/results/number.h"
#include "harness/runbook/plan/hardware.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

using State = DoctorRow::State;
constexpr int64_t kWantDiskMib = 2048, kWantMemoryMib = 4096;
constexpr double kCeilingsLimitS = 45;
constexpr size_t kLongestXid = 120;

DoctorRow row(bool ok, State otherwise, const std::string& what, const std::string& found,
              const std::string& remedy) {
  return {ok ? State::kOk : otherwise, what, found, ok ? "" : remedy};
}

DoctorRow compiler() {
  const Captured version = capture({"g++", "--version"});
  return row(version.ok(), State::kWarning, "compiler",
             version.ok() ? version.out.substr(0, version.out.find('\n')) : "no g++",
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
  for (const GpuFacts& gpu : list.gpus)
    for (DoctorRow& each : gpu_rows(gpu)) rows.push_back(std::move(each));
  if (!list.gpus.empty()) rows.push_back(xid_row(read_kernel_log()));
}

/// Copy and matrix product of the first GPU, by a worker, against its kind.
void ceilings(const fs::path& bin_dir, const fs::path& configs, std::vector<DoctorRow>& rows) {
  const GpuList list = list_gpus();
  if (configs.empty() || list.gpus.empty()) return;
  WorkerCall call{.program = bin_dir / "nsa-worker", .kind = "ceilings"};
  call.device = "cuda";
  call.timeout_s = kCeilingsLimitS;
  const WorkerAnswer answer = call_worker(call);
  if (!answer.problem.empty())
    return rows.push_back({State::kProblem, "ceilings", "not measured: " + answer.problem,
                           "run nsa-worker on the device by hand and read its errors"});
  const auto norm = find_hardware(load_hardware(configs), list.gpus[0].name);
  const auto rate = [&](const char* name) {
    for (const auto& line : answer.transcript.lines)
      if (const auto* metric = std::get_if<base::protocol::Metric>(&line.message);
          metric != nullptr && metric->name == name && metric->value.is_number())
        return metric->value.get<double>();
    return 0.0;
  };
  const auto best = [](const std::optional<double>& measured, double sheet) {
    return measured ? measured : std::optional(sheet);
  };
  using Norm = std::optional<double>;
  rows.push_back(ceiling_row("memory copy", rate("copy_gb_s"),
                             norm ? best(norm->measured_copy_gb_s, norm->memory_gb_s) : Norm(),
                             "GB/s"));
  rows.push_back(ceiling_row("matrix product", rate("matmul_tflop_s"),
                             norm ? best(norm->measured_bf16_tflop_s, norm->bf16_tflop_s) : Norm(),
                             "TFLOP/s"));
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
  return row(
      !names.empty(), State::kWarning, "data", names.empty() ? "no corpus with a manifest" : names,
      "tools/corpus makes local_text; a text of your own: nsa-data --in TEXT --out .data/NAME");
}

DoctorRow leftovers(const fs::path& out) {
  const std::string both = stale_leftovers(out);
  return row(both.empty(), State::kWarning, "leftovers",
             both.empty() ? "none" : "STALE_LEFTOVERS: " + both,
             "end these processes and remove these files, unless a run is going on");
}

std::string text_of(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "?";
}

}  // namespace

std::vector<DoctorRow> gpu_rows(const GpuFacts& gpu) {
  const std::string name = "GPU " + std::to_string(gpu.index);
  std::string text = gpu.name + ", " + std::to_string(gpu.memory_free_mib) + " of " +
                     std::to_string(gpu.memory_total_mib) + " MiB free";
  for (const GpuProcess& p : gpu.processes)
    text += ", pid " + std::to_string(p.pid) + " " + p.name +
            (p.mib ? " " + std::to_string(*p.mib) + " MiB" : "");
  if (!gpu.processes_problem.empty()) text += " (" + gpu.processes_problem + ")";
  std::vector<DoctorRow> rows = {
      row(gpu.exclusive(), State::kWarning, name, text,
          "end the other processes: measured figures would be theirs too")};
  // An idle link may lower its generation, never its width.
  const bool full =
      !gpu.pcie_width || !gpu.max_pcie_width || *gpu.pcie_width >= *gpu.max_pcie_width;
  rows.push_back(row(full, State::kWarning, name + " PCIe",
                     "x" + text_of(gpu.pcie_width) + " of x" + text_of(gpu.max_pcie_width) +
                         ", generation " + text_of(gpu.pcie_gen) + " of " +
                         text_of(gpu.max_pcie_gen),
                     "the slot or riser gives fewer PCIe lanes: copies to the host will be slow"));
  rows.push_back(row(gpu.ecc_uncorrected.value_or(0) == 0, State::kProblem, name + " ECC",
                     gpu.ecc ? std::string(*gpu.ecc ? "on, " : "off, ") +
                                   text_of(gpu.ecc_uncorrected) + " uncorrected errors"
                             : "not reported",
                     "reset or replace the card: results cannot be trusted"));
  rows.push_back(row(gpu.throttle_bits.value_or(0) == 0, State::kWarning, name + " clocks",
                     text_of(gpu.sm_clock_mhz) + " of " + text_of(gpu.max_sm_clock_mhz) +
                         " MHz, reasons held down " + text_of(gpu.throttle_bits),
                     "look at power limit and temperature before measuring"));
  return rows;
}

DoctorRow xid_row(const KernelLog& log) {
  if (!log.problem.empty())
    return {State::kWarning, "GPU errors (Xid)", "not known: the kernel log: " + log.problem,
            "run the doctor as root, or look for Xid in dmesg"};
  std::string found;
  for (const XidErrors& each : xid_errors(log.text))
    found += (found.empty() ? "" : "; ") + std::string("Xid ") + std::to_string(each.code) +
             " at " + each.bus + ", " + std::to_string(each.count) +
             " times, last: " + printable(each.last, kLongestXid);
  return row(found.empty(), State::kWarning, "GPU errors (Xid)",
             found.empty() ? "none in the kernel log" : found,
             "look up the code: some are faults of programs, others of the card");
}

DoctorRow ceiling_row(const std::string& what, double measured, std::optional<double> norm,
                      const std::string& unit) {
  constexpr double kEnough = 0.85;
  const std::string found = format_number(measured, 4) + " " + unit;
  if (!norm) return {State::kOk, what, found + ", no norm of this card in configs/hardware", ""};
  return row(measured >= kEnough * *norm, State::kWarning, what,
             found + ", " + format_number(100 * measured / *norm, 3) + " % of its kind's " +
                 format_number(*norm, 4),
             "look at clocks, other processes and the card itself before measuring");
}

std::vector<DoctorRow> doctor(const fs::path& out, const fs::path& bin_dir,
                              const fs::path& configs) {
  std::vector<DoctorRow> rows = {compiler(), memory(), disk(out), writable(out)};
  gpus(rows);
  const bool torch = find_library("libtorch_cpu.so", "torch/lib").has_value();
  rows.push_back(row(torch, State::kProblem, "LibTorch", torch ? "found" : "not found",
                     "tools/setup installs it into .venv"));
  rows.push_back(programs(bin_dir));
  rows.push_back(build(bin_dir));
  rows.push_back(data());
  rows.push_back(leftovers(out));
  ceilings(bin_dir, configs, rows);
  return rows;
}

int doctor_exit(const std::vector<DoctorRow>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const DoctorRow& r) { return r.state == State::kProblem; })
             ? 3
             : 0;
}

}  // namespace harness
