#include "suites/phases/profiles/profile_lines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace suites {
namespace {

using harness::trace::KernelRow;
using harness::trace::Ns;
using harness::trace::Profile;
using harness::trace::RangeRow;

constexpr size_t kKernelRows = 20;
constexpr double kCarriesRange = 90;  ///< percent of a range's time that make a kernel its work
constexpr double kWholeRoof = 100;

/// Ranges whose share is a metric in every report, entered or not.
constexpr auto kRanges = std::to_array<const char*>({"train.step",
                                                     "train.load",
                                                     "train.forward",
                                                     "train.loss",
                                                     "train.backward",
                                                     "train.optimizer",
                                                     "train.read_back",
                                                     "model.embedding",
                                                     "model.mlp",
                                                     "model.head",
                                                     "nsa.project",
                                                     "nsa.rope",
                                                     "nsa.compress",
                                                     "nsa.cmp_attn+select",
                                                     "nsa.select",
                                                     "nsa.ranges",
                                                     "nsa.sel_attn",
                                                     "nsa.win_attn",
                                                     "nsa.gate",
                                                     "nsa.cmp_attn.backward",
                                                     "nsa.sel_attn.backward",
                                                     "nsa.win_attn.backward"});

/// Three decimals: what a table can show.
double rounded(double value) { return std::round(value * 1000) / 1000; }

double ms_per_step(const Profile& p, Ns time) {
  return static_cast<double>(time) / 1e6 / static_cast<double>(p.steps);
}

void emit_counts(const PhaseCase& one, const Profile& p) {
  const auto count = [&](const char* name, double value) {
    emit_figure(one, name, value, "count");
  };
  count("profile.steps_count", static_cast<double>(p.steps));
  count("step.launches_per_step_count", p.per_step(p.launches));
  count("step.syncs_per_step_count", p.per_step(p.syncs));
  count("step.kernels_per_step_count", p.per_step(p.kernels));
  count("step.copies_per_step_count", p.per_step(p.copies));
  count("profile.graph_kernels_count", static_cast<double>(p.graph_kernels));
  count("profile.unseen_captures_count", static_cast<double>(p.unseen_captures));
  count("profile.lost_launches_count", static_cast<double>(p.lost_launches));
  count("profile.unmatched_work_count", static_cast<double>(p.unmatched_work));
}

/// Every launch left work, and all work has a call: otherwise counts and shares lack something.
void check_launches(const PhaseCase& one, const Profile& p) {
  const bool complete = p.lost_launches == 0 && p.unmatched_work == 0 && p.doubled_launches == 0;
  one.emitter.check(
      {.case_id = one.id,
       .id = "records/launches",
       .ok = complete,
       .code = complete ? "" : "PROFILE_INCOMPLETE",
       .detail = std::to_string(p.launches) + " launches, " + std::to_string(p.kernels) +
                 " kernels; " + std::to_string(p.lost_launches) + " launches without work, " +
                 std::to_string(p.unmatched_work) + " works without a call, " +
                 std::to_string(p.doubled_launches) + " launches with several kernels"});
}

void emit_times(const PhaseCase& one, const Profile& p) {
  const auto pct = [&](const char* name, double value) { emit_figure(one, name, value, "pct"); };
  emit_figure(one, "step.wall_ms", ms_per_step(p, p.wall), "ms");
  emit_figure(one, "device.busy_ms", ms_per_step(p, p.wall - p.idle.total()), "ms");
  pct("device.busy_pct", p.busy_pct());
  pct("device.idle_pct", p.idle_pct());
  pct("idle.sync_pct", Profile::percent(p.idle.sync, p.wall));
  pct("idle.host_wait_pct", Profile::percent(p.idle.host_wait, p.wall));
  pct("idle.event_wait_pct", Profile::percent(p.idle.event_wait, p.wall));
  pct("idle.kernel_wait_pct", Profile::percent(p.idle.kernel_wait, p.wall));
  pct("idle.other_pct", Profile::percent(p.idle.other, p.wall));
  pct("kernels.short_pct", Profile::percent(p.short_kernels, p.kernels));
  pct("shares.sum_pct", p.shares_sum_pct);
  pct("shares.unattributed_pct", Profile::percent(p.unattributed, p.busy));
}

void emit_communication(const PhaseCase& one, const Profile& p) {
  const auto& c = p.communication;
  if (c.kernels == 0) {
    for (const auto& [name, unit] : {std::pair{"comm.busy_ms", "ms"},
                                     {"comm.exposed_ms", "ms"},
                                     {"comm.overlapped_pct", "pct"}})
      emit_missing(one, name, unit, "no communication kernels");
    return;
  }
  emit_figure(one, "comm.busy_ms", ms_per_step(p, c.busy), "ms");
  emit_figure(one, "comm.exposed_ms", ms_per_step(p, c.exposed()), "ms");
  emit_figure(one, "comm.overlapped_pct", Profile::percent(c.overlapped, c.busy), "pct");
}

const RangeRow* find_range(const Profile& p, const std::string& name) {
  const auto found = std::find_if(p.ranges.begin(), p.ranges.end(),
                                  [&](const RangeRow& each) { return each.name == name; });
  return found == p.ranges.end() ? nullptr : &*found;
}

/// Whether the selection kernel wrote the ranges in every call, so that no conversion ran.
bool selection_leaves_ranges(const std::vector<nsa::RanBackend>& ran) {
  bool left = false;
  for (const nsa::RanBackend& row : ran) {
    if (row.stage != "ranges" || row.count == 0) continue;
    if (row.backend != "fused") return false;
    left = true;
  }
  return left;
}

void emit_shares(const PhaseCase& one, const Profile& p, const std::vector<nsa::RanBackend>& ran) {
  for (const char* range : kRanges) {
    if (const RangeRow* row = find_range(p, range))
      emit_figure(one, range_metric("share", range), row->share_pct, "pct");
    else if (std::string_view(range) == "nsa.ranges" && selection_leaves_ranges(ran))
      emit_figure(one, range_metric("share", range), 0, "pct");
    else
      emit_missing(one, range_metric("share", range), "pct", "the range was not entered");
  }
}

/// The part of a range's work that must go to memory: an entry may find as many bytes of its inputs
/// in the cache as that holds, and leave as many of its outputs there.
harness::trace::AnalyticalWork beyond_cache(harness::trace::AnalyticalWork need, double entries,
                                            const harness::trace::Ceilings& ceilings) {
  need.bytes = std::max(0.0, need.bytes - 2 * entries * ceilings.cache_bytes);
  return need;
}

/// Percent of the roof of a range's work in `time`, all steps together; null without a formula.
nlohmann::json roof_cell(const Profile& p, const Roof& roof, const std::string& range, Ns time) {
  const auto need = roof.work.find(range);
  if (need == roof.work.end()) return nullptr;
  const auto found = harness::trace::roofline(need->second, time / p.steps, roof.ceilings);
  return found ? nlohmann::json(rounded(found->pct)) : nlohmann::json();
}

/// A kernel that takes nearly all of its range's time did the range's work.
nlohmann::json kernel_roof_cell(const Profile& p, const Roof& roof, const KernelRow& row) {
  const RangeRow* range = find_range(p, row.range);
  if (range == nullptr || !(Profile::percent(row.sum, range->busy) >= kCarriesRange))
    return nullptr;
  return roof_cell(p, roof, row.range, row.sum);
}

void emit_range_table(const PhaseCase& one, const Profile& p, const Roof& roof) {
  nlohmann::json rows = nlohmann::json::array();
  for (const RangeRow& row : p.ranges)
    rows.push_back({row.name, rounded(p.per_step(row.count)), rounded(row.share_pct),
                    rounded(ms_per_step(p, row.self)), rounded(ms_per_step(p, row.busy)),
                    rounded(ms_per_step(p, row.span)), rounded(ms_per_step(p, row.sum)),
                    rounded(ms_per_step(p, row.host)), rounded(p.per_step(row.launches)),
                    rounded(p.per_step(row.syncs)), roof_cell(p, roof, row.name, row.busy)});
  rows.push_back({"(no range)", nullptr, rounded(Profile::percent(p.unattributed, p.busy)),
                  rounded(ms_per_step(p, p.unattributed)), nullptr, nullptr, nullptr, nullptr,
                  nullptr, nullptr, nullptr});
  one.emitter.table({.case_id = one.id,
                     .id = "ranges",
                     .title = "Device time of a step by range",
                     .columns = {"range", "entered", "share, %", "own, ms", "busy, ms", "span, ms",
                                 "sum, ms", "host, ms", "launches", "syncs", "of roof, %"},
                     .rows = rows,
                     .reason = "work without a range has a share only; a range without a formula "
                               "has no roof"});
}

void emit_kernel_table(const PhaseCase& one, const Profile& p, const Roof& roof) {
  nlohmann::json rows = nlohmann::json::array();
  const auto add = [&](const std::string& name, const std::string& range, int64_t count, Ns sum,
                       Ns least, Ns most, double share, const nlohmann::json& of_roof) {
    const auto us = [](Ns ns) { return rounded(static_cast<double>(ns) / 1e3); };
    rows.push_back({name, range, rounded(p.per_step(count)), rounded(ms_per_step(p, sum)),
                    us(count > 0 ? sum / count : 0), us(least), us(most), rounded(share), of_roof});
  };
  const size_t shown = std::min(kKernelRows, p.top.size());
  for (size_t i = 0; i < shown; ++i) {
    const KernelRow& row = p.top[i];
    add(row.name, row.range, row.count, row.sum, row.min, row.max, row.share_pct,
        kernel_roof_cell(p, roof, row));
  }
  KernelRow others{.name = "others", .range = ""};
  for (size_t i = shown; i < p.top.size(); ++i) {
    const KernelRow& row = p.top[i];
    others.min = others.count == 0 ? row.min : std::min(others.min, row.min);
    others.max = std::max(others.max, row.max);
    others.count += row.count;
    others.sum += row.sum;
    others.share_pct += row.share_pct;
  }
  if (others.count > 0)
    add(others.name, "", others.count, others.sum, others.min, others.max, others.share_pct,
        nullptr);
  one.emitter.table(
      {.case_id = one.id,
       .id = "kernels",
       .title = "Kernels of a step",
       .columns = {"kernel", "range", "calls", "ms", "mean, us", "min, us", "max, us", "share, %",
                   "of roof, %"},
       .rows = rows,
       .reason = "a roof stands where one kernel takes 90 % of a range with a formula"});
}

void emit_idle_table(const PhaseCase& one, const Profile& p) {
  nlohmann::json rows = nlohmann::json::array();
  const auto add = [&](const char* cause, Ns time) {
    rows.push_back({cause, rounded(ms_per_step(p, time)), rounded(Profile::percent(time, p.wall))});
  };
  add("the host waited for the device, then had nothing queued", p.idle.sync);
  add("the host had not asked for the next work yet", p.idle.host_wait);
  add("a stream waited for an event", p.idle.event_wait);
  add("pause under 2 us between kernels", p.idle.kernel_wait);
  add("longer pause, work was asked for", p.idle.other);
  one.emitter.table({.case_id = one.id,
                     .id = "idle",
                     .title = "Why the device was idle in a step",
                     .columns = {"cause", "ms", "of the step, %"},
                     .rows = rows});
}

void emit_copy_table(const PhaseCase& one, const Profile& p) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& row : p.copy_rows)
    rows.push_back({row.name, rounded(p.per_step(row.count)),
                    rounded(p.per_step(row.bytes) / (1 << 20)), rounded(ms_per_step(p, row.sum)),
                    rounded(row.gb_s())});
  one.emitter.table({.case_id = one.id,
                     .id = "copies",
                     .title = "Copies and memory sets of a step",
                     .columns = {"kind", "calls", "MiB", "ms", "GB/s"},
                     .rows = rows});
}

}  // namespace

void emit_figure(const PhaseCase& one, const std::string& name, double value,
                 const std::string& unit) {
  one.emitter.metric({.case_id = one.id, .name = name, .value = value, .unit = unit});
}

void emit_missing(const PhaseCase& one, const std::string& name, const std::string& unit,
                  const std::string& reason) {
  one.emitter.metric({.case_id = one.id, .name = name, .unit = unit, .reason = reason});
}

std::string range_metric(const std::string& group, const std::string& range) {
  std::string name = range;
  for (char& c : name)
    if (c == '.' || c == '+') c = '_';
  return group + "." + name + "_pct";
}

void emit_profile(const PhaseCase& one, const Profile& p, double shares_tolerance_pct,
                  const Roof& roof, const std::vector<nsa::RanBackend>& ran) {
  emit_counts(one, p);
  check_launches(one, p);
  emit_times(one, p);
  emit_communication(one, p);
  emit_shares(one, p, ran);
  emit_range_table(one, p, roof);
  emit_kernel_table(one, p, roof);
  emit_copy_table(one, p);
  emit_idle_table(one, p);
  const std::string off = harness::trace::check_shares(p, shares_tolerance_pct);
  one.emitter.check(
      {.case_id = one.id,
       .id = "shares/sum",
       .ok = off.empty(),
       .code = off.empty() ? "" : "SHARES_DO_NOT_SUM",
       .detail = off.empty() ? "shares add up to " + std::to_string(p.shares_sum_pct) + " %" : off,
       .err = std::abs(p.shares_sum_pct - 100),
       .tol = shares_tolerance_pct});
}

void emit_roofline(const PhaseCase& one, const Profile& p, const Roof& roof) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [range, need] : roof.work) {
    const RangeRow* row = find_range(p, range);
    const Ns busy = row == nullptr ? 0 : row->busy / p.steps;
    const auto found = harness::trace::roofline(need, busy, roof.ceilings);
    if (!found) {
      emit_missing(one, range_metric("roofline", range), "pct", "the range had no work");
      continue;
    }
    emit_figure(one, range_metric("roofline", range), found->pct, "pct");
    const double entries = static_cast<double>(row->count) / static_cast<double>(p.steps);
    const auto sure =
        harness::trace::roofline(beyond_cache(need, entries, roof.ceilings), busy, roof.ceilings);
    if (sure && !(sure->pct <= kWholeRoof))
      one.emitter.finding({.code = "ROOFLINE_EXCEEDED",
                           .symptom = "range " + range + " reached " + std::to_string(found->pct) +
                                      " % of its roof"});
    rows.push_back({range, rounded(static_cast<double>(busy) / 1e6), rounded(found->tflop_s),
                    rounded(found->gb_s), found->memory_bound ? "memory" : "matrix products",
                    rounded(found->pct)});
  }
  one.emitter.table({.case_id = one.id,
                     .id = "roofline",
                     .title = "Work by formula over what this machine was measured to reach",
                     .columns = {"range", "busy, ms", "TFLOP/s", "GB/s", "bound", "of roof, %"},
                     .rows = rows});
}

}  // namespace suites
