#pragma once
#include <string>
#include <vector>

#include "harness/trace/analysis/attribution.h"

/// Figures of a trace over its steps. Totals of all steps, times in ns; divide by `steps` for one.
namespace harness::trace {

/// Work of one range name. `busy`, `span`, `sum` include ranges within; `self` is the work whose
/// innermost range has this name. Three times, because a span hides gaps and a sum counts what runs
/// at the same time twice. Communication that other work hides costs a step nothing: no range has
/// it as its own, so shares add up.
struct RangeRow {
  std::string name;
  int64_t count = 0;  ///< how often the range was entered
  Ns host = 0;        ///< time that the host spent in it
  Ns busy = 0;        ///< union of its work
  Ns span = 0;        ///< first begin to last end of its work, added up over its entries
  Ns sum = 0;         ///< durations added up
  Ns self = 0;        ///< union of the work of this range alone; of communication what is exposed
  int64_t kernels = 0, launches = 0, syncs = 0, bytes = 0;  ///< of this range alone
  double share_pct = 0;  ///< self over the union of all work, percent
};

/// A kernel in one range: where it runs in several, each has a row.
struct KernelRow {
  std::string name;   ///< without template arguments
  std::string range;  ///< that asked for it
  int64_t count = 0;
  Ns sum = 0, min = 0, max = 0;
  double share_pct = 0;  ///< of the sum over all kernels
};

struct CopyRow {
  std::string name;  ///< HtoD, DtoH, ..., memset
  int64_t count = 0, bytes = 0;
  Ns sum = 0;
  double gb_s() const {
    return sum > 0 ? static_cast<double>(bytes) / static_cast<double>(sum) : 0;
  }
};

/// Why the device had nothing to do inside a step: what ended the gap decides. A gap belongs to one
/// cause as a whole.
struct IdleBreakdown {
  Ns sync = 0;         ///< the host waited for the device when it fell idle
  Ns host_wait = 0;    ///< the host had not yet asked for the next work
  Ns event_wait = 0;   ///< the stream waited for an event
  Ns kernel_wait = 0;  ///< shorter than kKernelGap: the pause between two kernels
  Ns other = 0;        ///< asked for before, none of the above
  Ns total() const { return sync + host_wait + event_wait + kernel_wait + other; }
};
inline constexpr Ns kKernelGap = 2000;

/// Communication between devices. No communication kernels: `kernels` is 0 and there is no share.
struct Communication {
  int64_t kernels = 0;
  Ns busy = 0;        ///< union of communication kernels
  Ns overlapped = 0;  ///< of that, at the same time as other kernels
  Ns exposed() const { return busy - overlapped; }
};

struct Profile {
  int64_t steps = 0;
  Ns wall = 0;  ///< of the steps, on the host
  Ns busy = 0;  ///< union of all device work of the steps
  int64_t kernels = 0, graph_kernels = 0, launches = 0, syncs = 0, copies = 0;
  int64_t unseen_captures = 0;   ///< work of graphs whose capture was not seen: no stage is known
  int64_t short_kernels = 0;     ///< kernels that ran shorter than the call that launched them took
  int64_t dropped = 0;           ///< records that the collector lost
  int64_t lost_launches = 0;     ///< launches in a step without any recorded work
  int64_t doubled_launches = 0;  ///< launches, no graphs, with more than one recorded kernel
  int64_t unmatched_work = 0;    ///< work in a step's time without a recorded call
  Ns unattributed = 0;           ///< union of the work in a step's time that no range asked for
  double shares_sum_pct = 0;     ///< shares of all ranges, `unattributed` left out
  std::vector<RangeRow> ranges;  ///< by share, descending
  std::vector<KernelRow> top;    ///< by sum, descending
  std::vector<CopyRow> copy_rows;  ///< by name
  IdleBreakdown idle;
  Communication communication;

  double per_step(int64_t value) const {
    return static_cast<double>(value) / static_cast<double>(steps);
  }
  double busy_pct() const { return percent(wall - idle.total(), wall); }
  double idle_pct() const { return percent(idle.total(), wall); }
  static double percent(Ns part, Ns whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

/// Throws harness::Error when the trace has no step, or work of several devices.
Profile profile(const Trace& trace, std::string_view step_name);

/// Empty when the shares add up to 100 % within `tolerance_pct`; else what is wrong: below, work is
/// unattributed; above, ranges ran at the same time, so their times do not add up.
std::string check_shares(const Profile& profile, double tolerance_pct);

}  // namespace harness::trace
