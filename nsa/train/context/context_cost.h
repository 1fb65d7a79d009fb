#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "nsa/config/config.h"

/// What a context-parallel call moves and takes, by formula; without LibTorch.
namespace nsa::train {

/// A block that is fetched is copied out of its place and into its place, and its id is sent; a
/// gather moves whole parts. Fetching must save a fifth of the bytes to be worth it.
constexpr double kFetchOverhead = 1.25;

/// Whether fetching `most` blocks at the rank that gets most takes less than giving every rank the
/// `rest` blocks that it does not have.
bool fetching_is_cheaper(int64_t most, int64_t rest);

/// Sizes of a call.
struct ContextCall {
  int64_t sequence = 0, ranks = 1, batch = 1;
  int64_t value_bytes = 2;
};

/// Bytes that a rank receives in one layer.
struct ContextBytes {
  double compressed = 0, selected = 0, boundaries = 0;  ///< forward
  double gradients = 0;                                 ///< backward, all of them
  double total() const { return compressed + selected + boundaries + gradients; }
};
/// Of the rank that receives most, where all keys and values are gathered.
ContextBytes context_bytes(const NsaConfig& config, const ContextCall& call);
/// With packed documents, forward or backward: keys and values of the three branches, all gathered.
inline double packed_bytes(const ContextBytes& bytes) { return 3 * bytes.selected; }

/// Rates of one device and its links.
struct ContextRates {
  double attention_tflops = 0;  ///< kernels of the branches, forward and backward
  double link_gb_per_s = 0;     ///< that a rank receives
};

/// How the tokens of a sequence are divided: one part a rank, or an early and a late piece.
enum class ContextLayout { kContiguous, kZigzag };
/// Mean work of attention over that of the rank that has most: later tokens see more compressed
/// blocks. 1: all have as much.
double work_balance(const NsaConfig& config, int64_t sequence, int64_t ranks, ContextLayout layout);

struct ContextTimes {
  double attention_ms = 0;      ///< of the rank that has most
  double communication_ms = 0;  ///< not overlapped
  std::string limit() const;    ///< "attention" or "communication": whichever takes longer
};
ContextTimes context_times(const NsaConfig& config, const ContextCall& call,
                           const ContextRates& rates);

}  // namespace nsa::train
