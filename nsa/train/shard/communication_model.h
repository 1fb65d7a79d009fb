#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace nsa::train {

/// What a micro-batch with sharded parameters computes and sends, however many ranks there are.
struct ShardedWork {
  double parameter_bytes = 0;  ///< of the model, in the type in which they travel
  double gradient_bytes = 0;   ///< the same of their gradients
  int64_t units = 1;           ///< that are gathered and averaged one by one
  double compute_ms = 0;       ///< forward and backward with parameters that are there, > 0
  /// Collectives run beside the computation. Not over Gloo, which takes the cores that compute.
  bool overlaps = true;
};

/// What one rank sends, as it was measured.
struct LinkRates {
  double gather_gb_s = 0;   ///< of parameters, 1e9 bytes a second, > 0
  double average_gb_s = 0;  ///< of gradients, > 0
  double message_us = 0;    ///< of one message without content
};

/// A micro-batch on a number of ranks, predicted.
struct CommunicationPlan {
  int64_t ranks = 1;
  double transfer_ms = 0;  ///< bytes of its collectives over the rates
  double latency_ms = 0;   ///< messages of its collectives
  double exposed_ms = 0;   ///< of both, what nothing hides
  double step_ms = 0;
  double linear_pct = 0;  ///< compute_ms over step_ms: the share of the linear rate that is kept
  std::string limit;      ///< what takes longest: compute, bandwidth or latency
};

/// Parameters are gathered twice and gradients averaged once, each in a ring: of N ranks every one
/// sends (N - 1) / N of the bytes in N - 1 messages (ZeRO, arXiv:1910.02054, section 7.2.2). They
/// run beside the computation, but for the first gather and the last average. `ranks` >= 1.
CommunicationPlan plan_communication(const ShardedWork& work, const LinkRates& rates,
                                     int64_t ranks);

/// For 1, 2, 4, .., `most` ranks: those of one node, up to `node_ranks`, by `within`, more by
/// `between`, the slowest link of a ring through several nodes.
std::vector<CommunicationPlan> plan_communication_up_to(const ShardedWork& work,
                                                        const LinkRates& within,
                                                        const LinkRates& between,
                                                        int64_t node_ranks, int64_t most);

/// The first plan that communication limits; null: computing takes longest in all of them.
const CommunicationPlan* first_limited(const std::vector<CommunicationPlan>& plans);

}  // namespace nsa::train
