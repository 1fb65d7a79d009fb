#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "harness/evidence/bundle.h"

namespace harness {

struct Verification {
  std::string head;                    ///< of the ledger; empty when it cannot be read
  std::string evidence_head;           ///< of its raw part
  int64_t files = 0;                   ///< files that the ledger covers
  std::vector<std::string> uncovered;  ///< files that a given evidence head does not stand for
  std::vector<EvidenceError>
      problems;  ///< every file that does not match the ledger or the evidence
  bool ok() const { return problems.empty() && files > 0; }
};

/// Proves a finished run, from its folder or its tar, on any machine: the chain, every hash, no
/// file missing and none added, results.json and the text reports derived again and equal byte for
/// byte. Never throws for damaged evidence: what is wrong is a problem naming its file. Drawings
/// (report.html, plots/) are not made again, only their hashes are checked. `head`: the ledger head
/// or the evidence head that was printed at the end of the run; empty when not at hand.
Verification verify(const std::filesystem::path& run, const ReportRenderer& render,
                    const std::string& head = "");

/// The raw evidence alone: the chain, and every artifact and sample. What passes may be rendered
/// again, whatever became of the reports.
Verification verify_raw(const RunFolder& run);

/// The first half of `verify`: chain and files, nothing derived again. A run that another version
/// of this program derived and rendered passes it, too.
Verification verify_files(const RunFolder& run);

/// Whether a run may be continued: one that has its ledger has ended. Reads only. Throws
/// EvidenceError for the first file that does not match the ledger, ConfigError when all are.
void require_unfinished(const std::filesystem::path& run);

/// Lines for a terminal: `ok` or one line a problem, and the head.
std::string verification_text(const Verification& verification);

}  // namespace harness
