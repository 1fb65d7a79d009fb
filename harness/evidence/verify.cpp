#include "harness/evidence/verify.h"

#include <set>

#include "base/files/whole_file.h"
#include "base/text/plain_text.h"
#include "harness/evidence/storage/ledger.h"
#include "harness/evidence/storage/packed_run.h"

namespace harness {
namespace {

class Verifier {
 public:
  Verifier(const RunFolder& run, const ReportRenderer& render) : run_(run), render_(render) {}

  Verification verify_files() && {
    check_chain("");
    check_files();
    return std::move(found_);
  }

  Verification verify_raw() && {
    raw_only_ = true;
    check_chain("");
    check_files();
    return std::move(found_);
  }

  Verification verify(const std::string& head) && {
    check_chain(head);
    check_files();
    // Derivation adds nothing about evidence that is already known to be changed.
    if (found_.problems.empty()) check_derived();
    return std::move(found_);
  }

 private:
  void problem(const std::string& file, const std::string& what) {
    found_.problems.emplace_back(file, what);
  }

  void check_chain(const std::string& head) {
    if (!run_.has("ledger.jsonl"))
      return problem("ledger.jsonl", "is missing: the run did not end, or it was removed");
    try {
      ledger_ = read_ledger(run_.read("ledger.jsonl"));
    } catch (const EvidenceError& e) {
      found_.problems.push_back(e);
      return;
    }
    found_.head = ledger_.head;
    found_.evidence_head = ledger_.evidence_head;
    found_.files = static_cast<int64_t>(ledger_.entries.size());
    if (!head.empty() && head != ledger_.head && head != ledger_.evidence_head)
      problem("ledger.jsonl", "its head is " + ledger_.head + " (of the evidence " +
                                  ledger_.evidence_head + "), not the given " + head);
    if (!head.empty() && head != ledger_.head)
      for (const LedgerEntry& entry : ledger_.entries)
        if (!is_raw_kind(entry.kind)) found_.uncovered.push_back(entry.path);
  }

  void check_files() {
    std::set<std::string> known;
    for (const LedgerEntry& entry : ledger_.entries) {
      if (!known.insert(entry.path).second)
        problem("ledger.jsonl", "names " + entry.path + " twice");
      if (!raw_only_ || is_raw_kind(entry.kind)) check_file(entry);
    }
    for (const std::string& path : run_.odd_paths())
      problem(path, "is a link, a pipe or has a name that is not UTF-8");
    if (ledger_.entries.empty()) return;
    for (const std::string& path : run_.paths())
      if (!known.contains(path) && !is_outside_ledger(path) &&
          (!raw_only_ || is_raw_kind(ledger_kind(path))))
        problem(path, known.contains(base::whole_of(path))
                          ? "is not in the ledger: who wrote it was killed; `report DIR` removes it"
                          : "is not in the ledger: it was added");
  }

  void check_file(const LedgerEntry& entry) {
    if (!run_.has(entry.path)) return problem(entry.path, "is missing");
    if (run_.bytes(entry.path) != entry.bytes)
      return problem(entry.path, "has " + std::to_string(run_.bytes(entry.path)) +
                                     " bytes, the ledger records " + std::to_string(entry.bytes));
    if (run_.sha256(entry.path) != entry.sha256)
      problem(entry.path, "was changed: its sha256 is not that of the ledger");
  }

  void check_derived() try {
    const Derived derived = derive_all(run_);
    for (const EvidenceError& e : derived.problems) found_.problems.push_back(e);
    compare("results.json", results_text(derived.results), "is not what the raw evidence gives");
    // A report that --format left out is in no ledger; one that was removed is a problem already.
    for (const auto& [name, text] : render_(derived.results))
      if (run_.has(name))
        compare(name, text,
                "is not what results.json gives; if another version of this program rendered it, "
                "`report DIR` renders it again and keeps the evidence head");
  } catch (const EvidenceError& e) {
    found_.problems.push_back(e);
  } catch (const std::exception& e) {
    problem("results.json", std::string("cannot be derived again: ") + e.what());
  }

  void compare(const std::string& file, const std::string& want, const char* what) {
    if (!run_.has(file)) return problem(file, "is missing");
    if (run_.read(file) != want) problem(file, what);
  }

  const RunFolder& run_;
  const ReportRenderer& render_;
  bool raw_only_ = false;
  Ledger ledger_;
  Verification found_;
};

}  // namespace

Verification verify(const std::filesystem::path& run, const ReportRenderer& render,
                    const std::string& head) {
  try {
    const RunFolder folder(run);
    return Verifier(folder, render).verify(head);
  } catch (const EvidenceError& e) {
    return {.head = "", .evidence_head = "", .files = 0, .uncovered = {}, .problems = {e}};
  }
}

Verification verify_raw(const RunFolder& run) {
  const ReportRenderer none;
  return Verifier(run, none).verify_raw();
}

Verification verify_files(const RunFolder& run) {
  const ReportRenderer none;
  return Verifier(run, none).verify_files();
}

void require_unfinished(const std::filesystem::path& run) {
  if (!std::filesystem::exists(std::filesystem::symlink_status(run / "ledger.jsonl")) &&
      !is_packed(run))
    return;
  const Verification found = verify_files(RunFolder(run));
  if (!found.problems.empty())
    throw EvidenceError(found.problems.front().file(), found.problems.front().message());
  throw ConfigError("--resume " + run.string() +
                    ": the run has ended and its evidence is sealed (ledger head " + found.head +
                    "); `report` renders it again, a new measurement is a new run");
}

std::string verification_text(const Verification& verification) {
  std::string text;
  for (const EvidenceError& problem : verification.problems)
    text += "evidence: " + base::plain_text(problem.what()) + "\n";
  if (verification.ok()) text += "evidence: ok, " + std::to_string(verification.files) + " files\n";
  if (verification.ok() && !verification.uncovered.empty()) {
    text += "the given evidence head covers the raw evidence only, not";
    for (const std::string& file : verification.uncovered)
      text += (file == verification.uncovered.front() ? " " : ", ") + base::plain_text(file);
    text += "; the text reports follow from the evidence, drawings are proved by the ledger head\n";
  }
  if (!verification.evidence_head.empty())
    text += "evidence head " + verification.evidence_head + "\n";
  if (!verification.head.empty()) text += "ledger head " + verification.head + "\n";
  return text;
}

}  // namespace harness
