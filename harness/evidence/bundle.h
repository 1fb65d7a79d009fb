#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/evidence/derive/derive.h"

namespace harness {

/// Renders files of a run from its results. The text reports (report.md, summary.md, comment.md,
/// junit.xml) are derived again by `verify`; the drawings (report.html, plots/) depend on the
/// gnuplot of the machine, so that only their hashes are checked. File name -> bytes. Passed in,
/// because this folder does not know reports/.
using ReportRenderer = std::function<std::map<std::string, std::string>(const Results&)>;

struct Written {
  Results results;
  std::string head;                     ///< head of the ledger, to be printed
  std::string evidence_head;            ///< of its raw part
  std::vector<EvidenceError> problems;  ///< what made the verdict NO-GO (evidence)
};

/// Removes half-written results, reports, ledger and archive (ledger.jsonl.part) of a process that
/// was killed, and half-unpacked files of a packed run: they are no evidence, and a ledger must not
/// name what its own rename takes away. Throws EvidenceError for a packed run without its ledger.
void remove_unfinished(const std::filesystem::path& run_dir);

/// Closes a run: removes what is unfinished, derives results.json from the raw evidence, renders
/// reports and drawings, and writes the ledger over everything last. May be called again
/// (`--resume`): the same evidence gives the same bytes, drawings aside, and the same evidence
/// head. Drawings of before are removed. Throws EvidenceError when results cannot be derived at
/// all, or a file cannot enter the ledger (a link, a name that is not UTF-8), and Error when a file
/// cannot be written.
Written write_bundle(const std::filesystem::path& run_dir, const ReportRenderer& render,
                     const ReportRenderer& draw = nullptr);

}  // namespace harness
