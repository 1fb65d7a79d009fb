#include "suites/bench/targets/pair_times.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "suites/bench/sampled_time.h"

namespace suites {
namespace {

using nlohmann::json;

json arm_json(const std::vector<std::string>& passes, const std::vector<std::vector<double>>& arm,
              const std::vector<double>& sums) {
  json out;
  for (size_t i = 0; i < passes.size(); ++i) out[passes[i]] = time_json(arm[i]);
  if (passes.size() > 1) out["both"] = time_json(sums);
  return out;
}

json ratio_json(const std::vector<double>& ratios) {
  const json found = time_json(ratios);
  return {{"n", found["n"]},
          {"median", found["median_ms"]},
          {"lo", found["lo_ms"]},
          {"hi", found["hi_ms"]},
          {"samples", found["samples_ms"]}};
}

std::vector<double> ratios_of(const std::vector<double>& dense, const std::vector<double>& ours) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(dense[i] / ours[i]);
  return ratios;
}

}  // namespace

PairTimes::PairTimes(std::vector<std::string> dense, std::vector<std::string> passes)
    : dense_names_(std::move(dense)),
      passes_(std::move(passes)),
      ours_(passes_.size()),
      dense_(dense_names_.size(), Passes(passes_.size())) {}

void PairTimes::resume(const json& row) {
  Passes ours(passes_.size());
  std::vector<Passes> dense(dense_names_.size(), Passes(passes_.size()));
  bool whole = true;
  const auto read = [&](const char* arm, const std::string& name, const std::string& pass) {
    const json* at = row.contains(arm) ? &row.at(arm) : nullptr;
    for (const std::string& key : {name, pass})
      if (at != nullptr && !key.empty()) at = at->contains(key) ? &at->at(key) : nullptr;
    if (at == nullptr || !at->contains("samples_ms")) return whole = false, std::vector<double>{};
    return at->at("samples_ms").get<std::vector<double>>();
  };
  for (size_t p = 0; p < passes_.size(); ++p) {
    ours[p] = read("ours", "", passes_[p]);
    for (size_t d = 0; d < dense.size(); ++d) {
      dense[d][p] = read("dense", dense_names_[d], passes_[p]);
      whole = whole && dense[d][p].size() == ours[0].size();
    }
    whole = whole && ours[p].size() == ours[0].size();
  }
  if (whole) ours_ = std::move(ours), dense_ = std::move(dense);
}

void PairTimes::add(const std::vector<double>& ours,
                    const std::vector<std::vector<double>>& dense) {
  for (size_t p = 0; p < passes_.size(); ++p) {
    ours_[p].push_back(ours.at(p));
    for (size_t d = 0; d < dense_.size(); ++d) dense_[d][p].push_back(dense.at(d).at(p));
  }
}

std::vector<double> PairTimes::sums(const Passes& arm) const {
  std::vector<double> all(count(), 0);
  for (const std::vector<double>& pass : arm)
    for (size_t i = 0; i < all.size(); ++i) all[i] += pass[i];
  return all;
}

void PairTimes::write(json& row) const {
  const std::vector<double> ours = sums(ours_);
  row["ours"] = arm_json(passes_, ours_, ours);
  std::vector<double> fastest;
  for (size_t d = 0; d < dense_.size(); ++d) {
    const std::vector<double> dense = sums(dense_[d]);
    json& out = row["dense"][dense_names_[d]];
    out = arm_json(passes_, dense_[d], dense);
    out["ratio"] = ratio_json(ratios_of(dense, ours));
    if (d == 0) fastest = dense;
    for (size_t i = 0; i < dense.size(); ++i) fastest[i] = std::min(fastest[i], dense[i]);
  }
  if (!dense_.empty()) row["ratio"] = ratio_json(ratios_of(fastest, ours));
}

bool is_complete(const json& row, size_t pairs) {
  return row.at("problems").empty() && row.contains("ratio") &&
         row.at("ratio").at("n").get<size_t>() >= pairs;
}

void require_same_setting(const json& earlier, const json& report) {
  for (const char* key : {"schema", "device", "libraries", "threads", "seed"})
    if (earlier.value(key, json()) != report.at(key))
      throw std::invalid_argument("--resume: the report has " + std::string(key) + " " +
                                  earlier.value(key, json()).dump() + ", this run " +
                                  report.at(key).dump() + "; name another file with --out");
}

const json* find_case(const json& report, const std::string& id, const std::string& config) {
  if (!report.contains("cases")) return nullptr;
  for (const json& row : report.at("cases"))
    if (row.at("id") == id && row.at("config") == config) return &row;
  return nullptr;
}

}  // namespace suites
