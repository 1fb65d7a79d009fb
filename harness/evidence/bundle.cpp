#include "harness/evidence/bundle.h"

#include "harness/evidence/files.h"
#include "harness/evidence/ledger.h"

namespace harness {
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

}  // namespace

Written write_bundle(const std::filesystem::path& run_dir, const ReportRenderer& render) {
  const RunFolder raw(run_dir);
  refuse_odd_paths(raw);
  Derived derived = derive_all(raw);
  write_bytes(run_dir / "results.json", results_text(derived.results));
  for (const auto& [name, text] : render(derived.results)) write_bytes(run_dir / name, text);
  const std::string ledger = ledger_text(entries_of(RunFolder(run_dir)));
  write_bytes(run_dir / "ledger.jsonl", ledger);
  return {std::move(derived.results), read_ledger(ledger).head, std::move(derived.problems)};
}

}  // namespace harness
