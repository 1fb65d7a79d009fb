#include "harness/evidence/storage/ledger.h"

#include <gtest/gtest.h>

#include "base/hash/sha256.h"
#include "harness/evidence/error.h"

namespace harness {
namespace {

std::vector<LedgerEntry> three_entries() {
  return {{"artifact", "run.json", base::sha256_hex("r"), 1},
          {"sample", "phases/p/g01.jsonl", base::sha256_hex("s"), 2},
          {"results", "results.json", base::sha256_hex("t"), 3}};
}

std::string problem_of(const std::string& text) {
  try {
    read_ledger(text);
  } catch (const EvidenceError& e) {
    EXPECT_EQ(e.file(), "ledger.jsonl");
    return e.message();
  }
  return "";
}

TEST(Ledger, ReadsWhatItWrote) {
  const Ledger ledger = read_ledger(ledger_text(three_entries()));
  EXPECT_EQ(ledger.entries, three_entries());
  EXPECT_EQ(ledger.head.size(), 64U);
}

TEST(Ledger, HeadIsTheChainedHashOfTheLastBody) {
  const std::string body =
      R"({"bytes":1,"kind":"results","path":"results.json","seq":0,"sha256":"00"})";
  const Ledger ledger = read_ledger(ledger_text({{"results", "results.json", "00", 1}}));
  EXPECT_EQ(ledger.head, base::sha256_hex(std::string(64, '0') + body));
}

TEST(Ledger, EveryFlippedByteIsSeen) {
  const std::string text = ledger_text(three_entries());
  for (size_t i = 0; i < text.size(); ++i)
    for (const int bit : {0, 3, 5, 7}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_NE(problem_of(changed), "") << "byte " << i << " bit " << bit;
    }
}

TEST(Ledger, EveryCutIsSeen) {
  const std::string text = ledger_text(three_entries());
  for (size_t n = 0; n < text.size(); ++n) EXPECT_NE(problem_of(text.substr(0, n)), "") << n;
}

TEST(Ledger, MovedAndMissingLinesAreSeen) {
  const std::string text = ledger_text(three_entries());
  const size_t first = text.find('\n') + 1, second = text.find('\n', first) + 1;
  const std::string a = text.substr(0, first), b = text.substr(first, second - first),
                    c = text.substr(second);
  EXPECT_EQ(problem_of(b + a + c),
            "line 1: breaks the hash chain (changed, moved or not canonical)");
  EXPECT_EQ(problem_of(a + c), "line 2: breaks the hash chain (changed, moved or not canonical)");
  EXPECT_EQ(problem_of(a + b), "does not end with results.json: lines are missing");
  EXPECT_EQ(problem_of(""), "holds no line");
}

TEST(Ledger, TheEvidenceHeadEndsWithTheRawEvidence) {
  const LedgerEntry run{"artifact", "run.json", std::string(64, 'a'), 1},
      sample{"sample", "phases/p/g01.jsonl", std::string(64, 'b'), 2},
      report{"report", "report.md", std::string(64, 'c'), 3},
      other{"report", "report.md", std::string(64, 'd'), 3},
      page{"drawing", "report.html", std::string(64, 'e'), 4},
      results{"results", "results.json", std::string(64, 'f'), 5};
  const Ledger a = read_ledger(ledger_text({run, sample, report, results}));
  const Ledger b = read_ledger(ledger_text({run, sample, other, page, results}));
  EXPECT_EQ(a.evidence_head, b.evidence_head);
  EXPECT_NE(a.head, b.head);
  EXPECT_NE(a.evidence_head, read_ledger(ledger_text({run, report, results})).evidence_head);
  EXPECT_EQ(problem_of(ledger_text({run, report, sample, results})),
            "line 3: holds raw evidence behind what is derived from it");
}

// The evidence head ends with the raw evidence: a file that decides, added behind it under another
// name for what it is, would change figures and leave that head as it was.
TEST(Ledger, RawEvidenceUnderAnotherKindIsSeen) {
  const LedgerEntry run{"artifact", "run.json", std::string(64, 'a'), 1},
      results{"results", "results.json", std::string(64, 'f'), 5};
  for (const char* path : {"phases/p/g01.jsonl", "phases/p/phase.json", "baseline.json"}) {
    const LedgerEntry added{"drawing", path, std::string(64, 'b'), 2};
    EXPECT_EQ(problem_of(ledger_text({run, added, results})),
              "line 2: calls " + std::string(path) + " drawing; it is " + ledger_kind(path));
  }
}

TEST(Ledger, KindsAndOrder) {
  std::vector<LedgerEntry> entries;
  for (const char* path : {"results.json", "plots/a.svg", "report.md", "phases/p/g01.jsonl",
                           "phases/p/out/x.jsonl", "run.json"})
    entries.push_back({ledger_kind(path), path, "", 0});
  sort_for_ledger(entries);
  std::string order;
  for (const LedgerEntry& entry : entries) order += entry.kind + ":" + entry.path + " ";
  EXPECT_EQ(
      order,
      "artifact:phases/p/out/x.jsonl artifact:run.json sample:phases/p/g01.jsonl report:report.md "
      "drawing:plots/a.svg results:results.json ");
}

}  // namespace
}  // namespace harness
