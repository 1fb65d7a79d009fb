#pragma once
#include "nsa/train/context/context_shard.h"
#include "suites/conformance/checks/check.h"

namespace nsa {
struct NsaConfig;
struct NsaInputs;
struct NsaOptions;
struct NsaOutputs;
}  // namespace nsa

namespace suites {

/// What one rank computed of sequences whose tokens are divided among ranks.
struct ContextRows {
  const nsa::NsaConfig& config;
  const nsa::NsaInputs& whole;  ///< all tokens
  const nsa::NsaOutputs& here;  ///< of the rank's two pieces, one behind the other
  nsa::train::ContextShard shard;
  int64_t count = 0;  ///< rows to judge, about; both pieces have some
  uint64_t seed = 0;
};

/// The oracle on rows of this rank: chosen blocks, every branch and the output, by the tolerance
/// table. Rotated queries and compressed keys are those that `options` compute on one device.
/// Throws c10::Error unless phi is mean.
Checks judge_context_rows(const ContextRows& rows, const nsa::NsaOptions& options);

}  // namespace suites
