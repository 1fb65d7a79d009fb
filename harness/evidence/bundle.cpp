#include "harness/evidence/bundle.h"

#include <set>

#include "base/files/whole_file.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/ledger.h"
#include "harness/evidence/storage/packed_run.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

void refuse_odd_paths(const RunFolder& run) {
  if (!run.odd_paths().empty())
    throw EvidenceError(
        run.odd_paths().front(),
        "is a link, a pipe or has a name that is not UTF-8; the ledger cannot cover it: remove it");
}

std::vector<LedgerEntry> entries_of(const RunFolder& run) {
  std::vector<LedgerEntry> entries;
  for (const std::string& path : run.paths())
    if (!is_outside_ledger(path))
      entries.push_back({ledger_kind(path), path, run.sha256(path), run.bytes(path)});
  sort_for_ledger(entries);
  return entries;
}

void write_all(const fs::path& run_dir, const ReportRenderer& render, const Results& results) {
  for (const auto& [name, text] : render(results)) {
    fs::create_directories((run_dir / name).parent_path());
    write_bytes(run_dir / name, text);
  }
}

void remove_drawings(const fs::path& run_dir) {
  fs::remove(run_dir / "report.html");
  fs::remove_all(run_dir / "plots");
}

/// Of a packed run that `report` was killed in unpacking: files of the archive that are half there.
void remove_half_unpacked(const fs::path& run_dir) {
  if (!is_packed(run_dir)) return;
  const RunFolder run(run_dir);
  std::set<std::string> known;
  for (const LedgerEntry& entry : read_ledger(run.read("ledger.jsonl")).entries)
    known.insert(entry.path);
  for (const std::string& path : run.paths())
    if (!known.contains(path) && known.contains(base::whole_of(path))) fs::remove(run_dir / path);
}

}  // namespace

void remove_unfinished(const fs::path& run_dir) {
  std::vector<fs::path> unfinished;
  for (const auto& item : fs::directory_iterator(run_dir)) {
    const std::string whole = base::whole_of(item.path().filename().string());
    if (is_outside_ledger(whole) || whole == kEvidenceArchive || !is_raw_kind(ledger_kind(whole)))
      unfinished.push_back(item.path());
  }
  for (const fs::path& part : unfinished) fs::remove(part);
  remove_half_unpacked(run_dir);
}

Written write_bundle(const fs::path& run_dir, const ReportRenderer& render,
                     const ReportRenderer& draw) {
  remove_unfinished(run_dir);
  const RunFolder raw(run_dir);
  refuse_odd_paths(raw);
  Derived derived = derive_all(raw);
  write_bytes(run_dir / "results.json", results_text(derived.results));
  write_all(run_dir, render, derived.results);
  remove_drawings(run_dir);
  if (draw) write_all(run_dir, draw, derived.results);
  const std::string ledger = ledger_text(entries_of(RunFolder(run_dir)));
  write_bytes(run_dir / "ledger.jsonl", ledger);
  const Ledger sealed = read_ledger(ledger);
  return {std::move(derived.results), sealed.head, sealed.evidence_head,
          std::move(derived.problems)};
}

}  // namespace harness
