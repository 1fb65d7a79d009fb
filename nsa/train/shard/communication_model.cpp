#include "nsa/train/shard/communication_model.h"

#include <algorithm>

namespace nsa::train {
namespace {

constexpr double kMsOfGb = 1e6;  ///< bytes over GB/s, in ms
constexpr double kUsOfMs = 1e3;

}  // namespace

CommunicationPlan plan_communication(const ShardedWork& work, const LinkRates& rates,
                                     int64_t ranks) {
  CommunicationPlan plan;
  plan.ranks = ranks;
  const auto units = static_cast<double>(work.units);
  const double messages = static_cast<double>(ranks - 1);
  const double share = messages / static_cast<double>(ranks);
  const double gather_ms = share * work.parameter_bytes / (rates.gather_gb_s * kMsOfGb);
  const double average_ms = share * work.gradient_bytes / (rates.average_gb_s * kMsOfGb);
  const double collective_ms = messages * rates.message_us / kUsOfMs;
  plan.transfer_ms = 2 * gather_ms + average_ms;
  plan.latency_ms = 3 * units * collective_ms;
  const double all_ms = plan.transfer_ms + plan.latency_ms;
  const double ends_ms = (gather_ms + average_ms) / units + 2 * collective_ms;
  plan.step_ms = work.overlaps ? std::max(work.compute_ms, all_ms - ends_ms) + ends_ms
                               : work.compute_ms + all_ms;
  plan.exposed_ms = plan.step_ms - work.compute_ms;
  plan.linear_pct = 100 * work.compute_ms / plan.step_ms;
  plan.limit = all_ms <= work.compute_ms             ? "compute"
               : plan.transfer_ms >= plan.latency_ms ? "bandwidth"
                                                     : "latency";
  return plan;
}

std::vector<CommunicationPlan> plan_communication_up_to(const ShardedWork& work,
                                                        const LinkRates& within,
                                                        const LinkRates& between,
                                                        int64_t node_ranks, int64_t most) {
  std::vector<CommunicationPlan> plans;
  for (int64_t ranks = 1; ranks <= most; ranks *= 2)
    plans.push_back(plan_communication(work, ranks <= node_ranks ? within : between, ranks));
  return plans;
}

const CommunicationPlan* first_limited(const std::vector<CommunicationPlan>& plans) {
  const auto limited = [](const CommunicationPlan& plan) { return plan.limit != "compute"; };
  const auto found = std::ranges::find_if(plans, limited);
  return found == plans.end() ? nullptr : &*found;
}

}  // namespace nsa::train
