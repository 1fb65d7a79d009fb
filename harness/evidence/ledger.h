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
/// that a later change of evidence *and* ledger is still seen by who kept the head. It shows edits;
/// it cannot prove that the machine was honest.
namespace harness {

struct LedgerEntry {
  std::string kind;    ///< artifact | sample | report | results
  std::string path;    ///< relative to the run folder
  std::string sha256;  ///< of the file, lower-case hex
  int64_t bytes = 0;
  bool operator==(const LedgerEntry&) const = default;
};

struct Ledger {
  std::vector<LedgerEntry> entries;
  std::string head;  ///< hash of the last line
};

/// Kind of a file by its path: results.json is `results`, phases/P/GROUP.jsonl `sample`, the text
/// reports `report`, everything else `artifact`.
std::string ledger_kind(const std::string& path);

/// True for what `verify` leaves aside because it is derived again from results.json: report.html
/// and plots/.
bool is_outside_ledger(const std::string& path);

/// Entries in ledger order: artifacts, samples, reports, results; by path within a kind.
void sort_for_ledger(std::vector<LedgerEntry>& entries);

/// The text of ledger.jsonl.
std::string ledger_text(const std::vector<LedgerEntry>& entries);

/// Reads ledger.jsonl and recomputes the chain. Throws EvidenceError naming the line and what is
/// wrong with it; any deviation from the canonical text, an empty ledger and a last entry that is
/// not results.json are errors.
Ledger read_ledger(const std::string& text);

}  // namespace harness
