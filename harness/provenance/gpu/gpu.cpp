#include "harness/provenance/gpu/gpu.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace harness {
using nlohmann::json;
namespace {

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json to_json(const GpuProcess& process) {
  return {{"pid", process.pid}, {"mib", or_null(process.mib)}, {"name", process.name}};
}

json to_json(const GpuFacts& gpu) {
  json processes = json::array();
  for (const GpuProcess& process : gpu.processes) processes.push_back(to_json(process));
  return {{"index", gpu.index},
          {"name", gpu.name},
          {"uuid", gpu.uuid},
          {"vbios", gpu.vbios},
          {"compute_mode", gpu.compute_mode},
          {"compute_capability", gpu.cc},
          {"memory_total_mib", gpu.memory_total_mib},
          {"memory_free_mib", gpu.memory_free_mib},
          {"memory_used_mib", gpu.memory_used_mib},
          {"processes", processes},
          {"processes_problem", gpu.processes_problem},
          {"foreign_memory_mib", gpu.foreign_mib()},
          {"exclusive", gpu.exclusive()},
          {"sm_clock_mhz", or_null(gpu.sm_clock_mhz)},
          {"max_sm_clock_mhz", or_null(gpu.max_sm_clock_mhz)},
          {"memory_clock_mhz", or_null(gpu.memory_clock_mhz)},
          {"power_limit_w", or_null(gpu.power_limit_w)},
          {"temperature_c", or_null(gpu.temperature_c)},
          {"pcie_generation", or_null(gpu.pcie_gen)},
          {"pcie_width", or_null(gpu.pcie_width)},
          {"max_pcie_generation", or_null(gpu.max_pcie_gen)},
          {"max_pcie_width", or_null(gpu.max_pcie_width)},
          {"nvlinks", or_null(gpu.nvlinks)},
          {"ecc_uncorrected", or_null(gpu.ecc_uncorrected)},
          {"throttle_bits", or_null(gpu.throttle_bits)},
          {"ecc", or_null(gpu.ecc)},
          {"persistence", or_null(gpu.persistence)},
          {"mig", or_null(gpu.mig)}};
}

/// The GPU that one entry of CUDA_VISIBLE_DEVICES names; end: none, or more than one.
std::vector<GpuFacts>::const_iterator named_gpu(const std::vector<GpuFacts>& all,
                                                std::string entry) {
  std::erase_if(entry, [](char c) { return c == ' '; });
  size_t index = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (error == std::errc() && end == entry.data() + entry.size())
    return index < all.size() ? all.begin() + static_cast<std::ptrdiff_t>(index) : all.end();
  const auto begins = [&](const GpuFacts& gpu) { return gpu.uuid.starts_with(entry); };
  if (!entry.starts_with("GPU-") || std::ranges::count_if(all, begins) != 1) return all.end();
  return std::ranges::find_if(all, begins);
}

}  // namespace

std::vector<GpuFacts> visible_gpus(std::vector<GpuFacts> all,
                                   const std::optional<std::string>& value) {
  // A slice of a GPU (MIG) has no row in this list: no GPU is left out, so that its own is not.
  if (!value || value->find("MIG-") != std::string::npos) return all;
  std::vector<GpuFacts> seen;
  std::istringstream entries(*value);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto gpu = named_gpu(all, entry);
    if (gpu == all.end()) break;
    seen.push_back(*gpu);
  }
  return seen;
}

int64_t GpuFacts::foreign_mib() const {
  int64_t listed = 0;
  for (const GpuProcess& process : processes) listed += process.mib.value_or(0);
  return std::max(listed, memory_used_mib);
}

bool GpuFacts::exclusive() const { return processes.empty() && memory_used_mib <= kIdleMib; }

std::string held_text(const GpuList& list) {
  std::string held;
  for (const GpuFacts& gpu : list.gpus) {
    if (gpu.exclusive()) continue;
    held += (held.empty() ? "" : "; ") + std::string("GPU ") + std::to_string(gpu.index) + ": " +
            std::to_string(gpu.foreign_mib()) + " MiB held";
    for (const GpuProcess& p : gpu.processes)
      held += ", pid " + std::to_string(p.pid) + " " + p.name +
              (p.mib ? " " + std::to_string(*p.mib) + " MiB" : "");
    if (!gpu.processes_problem.empty()) held += ", " + gpu.processes_problem;
  }
  return held;
}

json to_json(const GpuList& list) {
  json gpus = json::array();
  for (const GpuFacts& gpu : list.gpus) gpus.push_back(to_json(gpu));
  return {{"nvml", list.nvml},      {"problem", list.problem},   {"driver", list.driver},
          {"cuda", list.cuda},      {"count", list.gpus.size()}, {"gpus", gpus},
          {"visible", list.visible}};
}

}  // namespace harness
