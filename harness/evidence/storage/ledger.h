#pragma once
#include <cstdint>
#include <string>
#include <vector>

/// ledger.jsonl: one line a file of the run, chained by hashes, results.json last.
///
///   {"body":{"bytes","kind","path","seq","sha256"},"hash":H,"prev":P}
///   H = sha256(P + canonical(body)); P = hash of the line before, 64 zeros for the first.
///
/// The hash of the last line is the head: it stands for every byte of the run and is printed, so
/// that a later change of evidence *and* ledger is still seen by who kept the head. The hash of the
/// last raw line is the evidence head: it stands for what happened, and stays the same when the
/// reports are rendered again. Both show edits; they cannot prove that the machine was honest.
namespace harness {

struct LedgerEntry {
  std::string kind;    ///< artifact | sample | report | drawing | results
  std::string path;    ///< relative to the run folder
  std::string sha256;  ///< of the file, lower-case hex
  int64_t bytes = 0;
  bool operator==(const LedgerEntry&) const = default;
};

struct Ledger {
  std::vector<LedgerEntry> entries;
  std::string evidence_head;  ///< hash of the last line of raw evidence; 64 zeros without any
  std::string head;           ///< hash of the last line
};

/// Kind of a file by its path: results.json is `results`, phases/P/GROUP.jsonl `sample`, the text
/// reports `report`, report.html and plots/ `drawing`, everything else `artifact`.
std::string ledger_kind(const std::string& path);

/// Raw evidence, artifacts and samples: what happened. The rest is derived from it.
bool is_raw_kind(const std::string& kind);

/// True for the ledger itself.
bool is_outside_ledger(const std::string& path);

/// Entries in ledger order: artifacts, samples, reports, drawings, results; by path within a kind.
void sort_for_ledger(std::vector<LedgerEntry>& entries);

/// The text of ledger.jsonl.
std::string ledger_text(const std::vector<LedgerEntry>& entries);

/// Reads ledger.jsonl and recomputes the chain. Throws EvidenceError naming the line and what is
/// wrong with it; any deviation from the canonical text, an empty ledger, raw evidence behind what
/// is derived from it and a last entry that is not results.json are errors.
Ledger read_ledger(const std::string& text);

}  // namespace harness
