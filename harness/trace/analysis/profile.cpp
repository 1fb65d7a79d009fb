#include "harness/trace/analysis/profile.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "harness/schema/error.h"
#include "harness/trace/analysis/idle.h"

namespace harness::trace {
namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

/// What is gathered for one range name before it becomes a row.
struct Gathered {
  RangeRow row;
  std::vector<Interval> all, own, talk;  ///< own: but for its communication, which is in talk
};

class Profiler {
 public:
  Profiler(const Trace& trace, std::string_view step_name)
      : trace_(trace), found_(attribute(trace, step_name)) {
    if (found_.steps.empty())
      throw Error("the trace must have ranges '" + std::string(step_name) + "', got none");
    for (const int64_t step : found_.steps) windows_.push_back(trace.ranges[at(step)].time);
    check_one_device();
  }

  Profile run() {
    out_.steps = static_cast<int64_t>(windows_.size());
    out_.wall = sum(windows_);
    out_.dropped = trace_.dropped;
    take_ranges();
    take_calls();
    for (size_t i = 0; i < trace_.work.size(); ++i) take_work(i);
    add_spans();
    finish_rows();
    finish_kernels();
    out_.idle = break_down_idle(trace_, found_, merge(all_), windows_);
    finish_communication();
    return std::move(out_);
  }

 private:
  void check_one_device() const {
    for (const DeviceWork& work : trace_.work)
      if (work.device != trace_.work.front().device)
        throw Error("a trace must hold work of one device, got " +
                    std::to_string(trace_.work.front().device) + " and " +
                    std::to_string(work.device));
  }

  int64_t step_of(int64_t range) const { return range == kNone ? kNone : found_.step[at(range)]; }

  Gathered& of_name(int64_t range) { return gathered_[found_.ranges[at(range)].name]; }

  void take_ranges() {
    for (size_t i = 0; i < found_.ranges.size(); ++i) {
      if (found_.step[i] == kNone) continue;
      RangeRow& row = of_name(static_cast<int64_t>(i)).row;
      ++row.count;
      row.host += found_.ranges[i].time.length();
    }
  }

  void take_calls() {
    std::unordered_map<int64_t, int64_t> works;
    for (const DeviceWork& work : trace_.work) ++works[work.correlation];
    const std::vector<bool> nested = nested_calls(trace_);
    for (size_t i = 0; i < trace_.calls.size(); ++i) {
      const HostCall& call = trace_.calls[i];
      const int64_t range = found_.range_of_call[i];
      if (step_of(range) == kNone || nested[i]) continue;
      RangeRow& row = of_name(range).row;
      const bool launch = call.kind == CallKind::kLaunch || call.kind == CallKind::kGraphLaunch;
      row.launches += launch;
      row.syncs += call.kind == CallKind::kSync;
      out_.launches += launch;
      out_.syncs += call.kind == CallKind::kSync;
      if (!launch) continue;
      const auto recorded = works.find(call.correlation);
      out_.lost_launches += recorded == works.end();
      out_.doubled_launches +=
          call.kind == CallKind::kLaunch && recorded != works.end() && recorded->second > 1;
    }
  }

  void take_work(size_t index) {
    const DeviceWork& work = trace_.work[index];
    const int64_t range = found_.range_of_work[index];
    if (step_of(range) == kNone) return take_unattributed(index);
    all_.push_back(work.time);
    count(index);
    out_.unseen_captures += found_.unseen_capture[index];
    Gathered& own = of_name(range);
    (talks(work) ? own.talk : own.own).push_back(work.time);
    if (!talks(work)) others_.push_back(work.time);
    own.row.kernels += work.kind == WorkKind::kKernel;
    own.row.bytes += work.bytes;
    std::vector<int64_t> seen;  // a name within itself counts once
    for (int64_t up = range; up != kNone; up = found_.parent[at(up)]) {
      const int64_t name = found_.ranges[at(up)].name;
      Interval& span = spans_.try_emplace(up, work.time).first->second;
      span = {std::min(span.begin, work.time.begin), std::max(span.end, work.time.end)};
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      seen.push_back(name);
      gathered_[name].all.push_back(work.time);
      gathered_[name].row.sum += work.time.length();
      if (found_.steps[at(step_of(range))] == up) break;
    }
  }

  bool talks(const DeviceWork& work) const {
    return work.kind == WorkKind::kKernel && is_communication(trace_.name_of(work.name));
  }

  /// Work that no range of a step asked for but that ran in the time of one.
  void take_unattributed(size_t index) {
    const DeviceWork& work = trace_.work[index];
    const std::vector<Interval> inside = intersect({work.time}, windows_);
    if (inside.empty()) return;
    all_.insert(all_.end(), inside.begin(), inside.end());
    unattributed_.insert(unattributed_.end(), inside.begin(), inside.end());
    out_.unmatched_work += found_.call_of_work[index] == kNone;
  }

  void count(size_t index) {
    const DeviceWork& work = trace_.work[index];
    if (work.kind != WorkKind::kKernel) return count_copy(work);
    ++out_.kernels;
    out_.graph_kernels += work.graph_node != 0;
    const HostCall& call = trace_.calls[at(found_.call_of_work[index])];
    out_.short_kernels += work.time.length() < call.time.length();
    (talks(work) ? communication_ : compute_).push_back(work.time);
    out_.communication.kernels += talks(work);
    KernelRow& row = kernels_[{work.name, found_.ranges[at(found_.range_of_work[index])].name}];
    const Ns length = work.time.length();
    row.min = row.count == 0 ? length : std::min(row.min, length);
    row.max = std::max(row.max, length);
    ++row.count;
    row.sum += length;
  }

  void count_copy(const DeviceWork& work) {
    CopyRow& row = copies_[trace_.name_of(work.name)];
    ++row.count;
    row.bytes += work.bytes;
    row.sum += work.time.length();
    ++out_.copies;
  }

  void add_spans() {
    for (const auto& [range, span] : spans_) of_name(range).row.span += span.length();
  }

  void finish_rows() {
    out_.busy = busy(all_);
    out_.unattributed = busy(unattributed_);
    const std::vector<Interval> others = merge(std::move(others_));
    for (auto& [name, each] : gathered_) {
      const std::vector<Interval> talk = merge(std::move(each.talk));
      each.row.name = trace_.name_of(name);
      each.row.busy = busy(std::move(each.all));
      each.row.self = busy(std::move(each.own)) + sum(talk) - sum(intersect(talk, others));
      each.row.share_pct = Profile::percent(each.row.self, out_.busy);
      out_.shares_sum_pct += each.row.share_pct;
      out_.ranges.push_back(std::move(each.row));
    }
    std::stable_sort(out_.ranges.begin(), out_.ranges.end(),
                     [](const RangeRow& a, const RangeRow& b) { return a.self > b.self; });
    for (auto& [name, row] : copies_) {
      row.name = name;
      out_.copy_rows.push_back(std::move(row));
    }
  }

  /// Instances of one template in one range are one row.
  void finish_kernels() {
    std::map<std::pair<std::string, int64_t>, KernelRow> rows;
    Ns total = 0;
    for (const auto& [key, part] : kernels_) {
      KernelRow& row = rows[{short_name(trace_.name_of(key.first)), key.second}];
      row.min = row.count == 0 ? part.min : std::min(row.min, part.min);
      row.max = std::max(row.max, part.max);
      row.count += part.count;
      row.sum += part.sum;
      total += part.sum;
    }
    for (auto& [key, row] : rows) {
      row.name = key.first;
      row.range = trace_.name_of(key.second);
      row.share_pct = Profile::percent(row.sum, total);
      out_.top.push_back(std::move(row));
    }
    std::stable_sort(out_.top.begin(), out_.top.end(),
                     [](const KernelRow& a, const KernelRow& b) { return a.sum > b.sum; });
  }

  void finish_communication() {
    const std::vector<Interval> talk = merge(std::move(communication_));
    out_.communication.busy = sum(talk);
    out_.communication.overlapped = sum(intersect(talk, merge(std::move(compute_))));
  }

  const Trace& trace_;
  const Attribution found_;
  std::vector<Interval> windows_, all_, others_, unattributed_, compute_, communication_;
  std::map<int64_t, Gathered> gathered_;
  std::map<int64_t, Interval> spans_;
  std::map<std::pair<int64_t, int64_t>, KernelRow> kernels_;  ///< by name and range
  std::map<std::string, CopyRow> copies_;
  Profile out_;
};

}  // namespace

Profile profile(const Trace& trace, std::string_view step_name) {
  return Profiler(trace, step_name).run();
}

std::string check_shares(const Profile& profile, double tolerance_pct) {
  const double off = profile.shares_sum_pct - 100;
  if (off >= -tolerance_pct && off <= tolerance_pct) return "";
  const std::string sum = "shares of the ranges add up to " +
                          std::to_string(profile.shares_sum_pct) + " %, want 100 % +- " +
                          std::to_string(tolerance_pct) + " %: ";
  if (off < 0)
    return sum + std::to_string(Profile::percent(profile.unattributed, profile.busy)) +
           " % of the device's time belongs to no range";
  return sum + "ranges ran at the same time or a range's work is counted in another";
}

}  // namespace harness::trace
