#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "harness/evidence/bundle.h"

namespace harness {

struct Verification {
  std::string head;   ///< of the ledger; empty when it cannot be read
  int64_t files = 0;  ///< files that the ledger covers
  std::vector<EvidenceError>
      problems;  ///< every file that is not what the ledger, or the evidence, says
  bool ok() const { return problems.empty() && files > 0; }
};

/// Proves a finished run, from its folder or its tar, on any machine: the chain, every hash, no
/// file missing and none added, results.json and the text reports derived again and equal byte for
/// byte. Never throws for damaged evidence: what is wrong is a problem naming its file. report.html
/// and plots/ are derived and left aside. `head`: the head that was printed at the end of the run;
/// empty when not at hand.
Verification verify(const std::filesystem::path& run, const ReportRenderer& render,
                    const std::string& head = "");

/// The first half of `verify`: chain and files, nothing derived again. A run that another version
/// of this program derived and rendered passes it, too.
Verification verify_files(const RunFolder& run);

/// Lines for a terminal: `ok` or one line a problem, and the head.
std::string verification_text(const Verification& verification);

}  // namespace harness
