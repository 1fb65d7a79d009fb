#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/protocol/lines.h"
#include "harness/process/outcome.h"

namespace harness {

/// Why a process that ended by itself or by a signal counts as failed (`GroupOutcome` lists the
/// causes); all empty: it does not.
struct FailureCause {
  std::string cause;
  std::string reason;           ///< one sentence with what was seen
  bool infrastructure = false;  ///< the machine's fault, not the product's
};

/// The last line of a log that is not blank, printable and cut; empty when there is none.
std::string last_words(const std::filesystem::path& log);

/// By how it ended: `exit_code` and `signal` of `ended`. `err` is its standard error, whose last
/// line is the reason; `progress` states how far it came.
FailureCause cause_of_exit(const GroupOutcome& ended, const std::filesystem::path& err,
                           const std::string& progress);

/// By the rules of the protocol that its result channel broke.
FailureCause cause_of_violations(const std::vector<base::protocol::Violation>& violations);

}  // namespace harness
