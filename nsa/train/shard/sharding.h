#pragma once
#include <string>

namespace nsa::train {

/// What the ranks of a run divide among them (option --shard).
enum class Sharding {
  kNone,       ///< nothing: every rank has parameters, gradients and moments whole
  kOptimizer,  ///< moments: ZeRO-1 (arXiv:1910.02054, section 5.1)
  kFull,       ///< parameters, gradients and moments: ZeRO-3 (section 5.3), FSDP (arXiv:2304.11277)
};

/// `name`: none, optimizer or full. Throws InputError for another one.
Sharding sharding_of(const std::string& name);

}  // namespace nsa::train
