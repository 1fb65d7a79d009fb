#pragma once
#include <string>
#include <vector>

#include "suites/conformance/case_config.h"

/// Calls that users of the operator make, beside those that targets are set for. Torch-free.
namespace suites {

struct UserCase {
  std::string id;  ///< "nsa1b_8k"
  CaseConfig config;
  /// Lengths of packed documents, together config.tokens; empty: a batch.
  std::vector<int64_t> documents = {};
};

/// NSA-1B, groups of 2 and 8 heads, head dims 96 and 256, selection blocks of 128 keys, and packed
/// documents of mixed lengths; 8192 tokens each. Compression mean, no rotation, sigmoid gates; K
/// and V shared by the branches.
std::vector<UserCase> user_cases();

}  // namespace suites
