#include "harness/trace/analysis/path_proof.h"

#include <algorithm>
#include <map>

namespace harness::trace {
namespace {

constexpr size_t kNamesInDetail = 6;

/// Time that a short kernel name got in the range or below it.
std::map<std::string, Ns> kernels_in(const Trace& trace, const Attribution& found,
                                     const std::string& range_name) {
  std::map<std::string, Ns> kernels;
  for (size_t i = 0; i < trace.work.size(); ++i) {
    if (trace.work[i].kind != WorkKind::kKernel) continue;
    int64_t range = found.range_of_work[i];
    if (range == kNone || found.step[static_cast<size_t>(range)] == kNone) continue;
    while (range != kNone &&
           trace.name_of(found.ranges[static_cast<size_t>(range)].name) != range_name)
      range = found.parent[static_cast<size_t>(range)];
    if (range != kNone)
      kernels[short_name(trace.name_of(trace.work[i].name))] += trace.work[i].time.length();
  }
  return kernels;
}

/// Kernels of the steps that may belong to any range: of graphs whose capture was not seen.
int64_t kernels_of_unseen_captures(const Trace& trace, const Attribution& found) {
  int64_t kernels = 0;
  for (size_t i = 0; i < trace.work.size(); ++i) {
    const int64_t range = found.range_of_work[i];
    kernels += found.unseen_capture[i] && trace.work[i].kind == WorkKind::kKernel &&
               range != kNone && found.step[static_cast<size_t>(range)] != kNone;
  }
  return kernels;
}

/// Whether the name contains one of the alternatives.
bool matches(const std::string& pattern, const std::string& kernel) {
  for (size_t begin = 0; begin <= pattern.size();) {
    const size_t end = std::min(pattern.find('|', begin), pattern.size());
    const std::string part = pattern.substr(begin, end - begin);
    if (!part.empty() && kernel.find(part) != std::string::npos) return true;
    begin = end + 1;
  }
  return false;
}

std::vector<std::string> by_time(const std::map<std::string, Ns>& kernels) {
  std::vector<std::pair<std::string, Ns>> order(kernels.begin(), kernels.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> names;
  for (auto& [name, time] : order) names.push_back(std::move(name));
  return names;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesInDetail); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  const size_t more = names.size() - std::min(names.size(), kNamesInDetail);
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

}  // namespace

PathProof prove_path(const Trace& trace, const Attribution& found, const PathRule& rule) {
  const std::map<std::string, Ns> kernels = kernels_in(trace, found, rule.range);
  PathProof proof{.kernels = by_time(kernels)};
  if (const int64_t unseen = kernels_of_unseen_captures(trace, found)) {
    proof.detail = std::to_string(unseen) +
                   " kernels ran from CUDA graphs whose capture was not "
                   "seen: they may belong to range " +
                   rule.range;
    return proof;
  }
  if (kernels.empty()) {
    proof.detail = "range " + rule.range + " launched no kernel";
    return proof;
  }
  const auto any = [&](const std::string& pattern) {
    return std::find_if(kernels.begin(), kernels.end(),
                        [&](const auto& each) { return matches(pattern, each.first); });
  };
  for (const std::string& pattern : rule.expected)
    if (any(pattern) == kernels.end()) proof.detail += "no kernel '" + pattern + "'; ";
  for (const std::string& pattern : rule.forbidden)
    if (const auto bad = any(pattern); bad != kernels.end())
      proof.detail += "kernel '" + bad->first + "' is forbidden ('" + pattern + "'); ";
  proof.ok = proof.detail.empty();
  proof.detail += "range " + rule.range + " ran " + list(proof.kernels);
  return proof;
}

}  // namespace harness::trace
