#include "harness/evidence/storage/ledger.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/hash/sha256.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using nlohmann::json;
constexpr std::array<std::string_view, 5> kOrder = {"artifact", "sample", "report", "drawing",
                                                    "results"};
constexpr std::array<std::string_view, 4> kReports = {"report.md", "summary.md", "comment.md",
                                                      "junit.xml"};

size_t rank_of(const std::string& kind) {
  return static_cast<size_t>(std::find(kOrder.begin(), kOrder.end(), kind) - kOrder.begin());
}

std::string line_of(const LedgerEntry& entry, size_t seq, std::string& prev) {
  const json body = {{"bytes", entry.bytes},
                     {"kind", entry.kind},
                     {"path", entry.path},
                     {"seq", seq},
                     {"sha256", entry.sha256}};
  const std::string hash = base::sha256_hex(prev + canonical_dump(body));
  const json line = {{"body", body}, {"hash", hash}, {"prev", prev}};
  prev = hash;
  return canonical_dump(line) + "\n";
}

[[noreturn]] void bad_line(size_t number, const std::string& what) {
  throw EvidenceError("ledger.jsonl", "line " + std::to_string(number) + ": " + what);
}

LedgerEntry entry_of(const std::string& line, size_t number) {
  const json parsed = json::parse(line, nullptr, false);
  if (parsed.is_discarded()) bad_line(number, "is not JSON");
  try {
    const json& body = parsed.at("body");
    return {body.at("kind").get<std::string>(), body.at("path").get<std::string>(),
            body.at("sha256").get<std::string>(), body.at("bytes").get<int64_t>()};
  } catch (const json::exception&) {
    bad_line(number, "lacks kind, path, sha256 or bytes");
  }
}

}  // namespace

std::string ledger_kind(const std::string& path) {
  if (path == "results.json") return "results";
  if (path.starts_with("phases/") && path.ends_with(".jsonl") &&
      std::count(path.begin(), path.end(), '/') == 2)
    return "sample";
  if (path == "report.html" || path.starts_with("plots/")) return "drawing";
  if (std::find(kReports.begin(), kReports.end(), path) != kReports.end()) return "report";
  return "artifact";
}

bool is_raw_kind(const std::string& kind) { return kind == "artifact" || kind == "sample"; }

bool is_outside_ledger(const std::string& path) { return path == "ledger.jsonl"; }

void sort_for_ledger(std::vector<LedgerEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const LedgerEntry& a, const LedgerEntry& b) {
    return std::tuple(rank_of(a.kind), a.path) < std::tuple(rank_of(b.kind), b.path);
  });
}

std::string ledger_text(const std::vector<LedgerEntry>& entries) {
  std::string text;
  std::string prev(64, '0');
  for (size_t i = 0; i < entries.size(); ++i) text += line_of(entries[i], i, prev);
  return text;
}

Ledger read_ledger(const std::string& text) {
  Ledger ledger;
  std::string prev(64, '0');
  ledger.evidence_head = prev;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) bad_line(number, "is cut off before its end");
    const std::string line = text.substr(begin, end + 1 - begin);
    const LedgerEntry entry = entry_of(line, number);
    if (line_of(entry, number - 1, prev) != line)
      bad_line(number, "breaks the hash chain (changed, moved or not canonical)");
    if (entry.kind != ledger_kind(entry.path))
      bad_line(number,
               "calls " + entry.path + " " + entry.kind + "; it is " + ledger_kind(entry.path));
    if (is_raw_kind(entry.kind)) {
      if (!ledger.entries.empty() && !is_raw_kind(ledger.entries.back().kind))
        bad_line(number, "holds raw evidence behind what is derived from it");
      ledger.evidence_head = prev;
    }
    ledger.entries.push_back(entry);
    begin = end + 1;
  }
  if (ledger.entries.empty()) throw EvidenceError("ledger.jsonl", "holds no line");
  if (ledger.entries.back().path != "results.json")
    throw EvidenceError("ledger.jsonl", "does not end with results.json: lines are missing");
  ledger.head = prev;
  return ledger;
}

}  // namespace harness
