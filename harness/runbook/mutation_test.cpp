#include <cstdlib>
#include <fstream>
#include <set>

#include "base/testing/paths.h"
#include "harness/runbook/mutate.h"
#include "harness/runbook/plan/plan.h"
#include "harness/runbook/testing.h"
#include "harness/schema/write.h"

/// Damaged runbooks are either good or a ConfigError of one line; never a crash, a hang or another
/// exception. A good one can be planned, and written.
namespace harness {
namespace {

const Kinds& shipped_kinds() {
  static const Kinds kinds = load_kinds(source_path("configs"));
  return kinds;
}

/// 1 when `text` loads, 0 when it is rejected.
int try_load(const TempConfigs& configs, const std::string& text) {
  try {
    const LoadedRunbook book = configs.load_with(shipped_kinds(), text);
    make_plan(book, {{"gpu.count", 1}});
    canonical_dump(to_json(book.runbook));
    return 1;
  } catch (const ConfigError& e) {
    const std::string what = e.what();
    EXPECT_GT(what.size(), 20u) << text;
    EXPECT_LT(what.size(), 2000u) << text;
    for (const char c : what)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
        ADD_FAILURE() << "error with raw bytes: " << what;
        break;
      }
    return 0;
  }
}

/// TEST_MUTATIONS=10000 tries as many of both forms together.
int mutations_each() {
  const char* text = std::getenv("TEST_MUTATIONS");
  return text == nullptr ? 1500 : std::atoi(text) / 2;
}

/// The error of a runbook text without the file's name, or "good".
std::string answer(const TempConfigs& configs, const std::string& text) {
  try {
    make_plan(configs.load_with(shipped_kinds(), text), {{"gpu.count", 1}});
    return "good";
  } catch (const ConfigError& e) {
    return e.message();
  }
}

const std::string kCorpus = base::source_dir() + "/harness/runbook/testdata/mutated.jsonl";

/// An error without its quoted texts and numbers.
std::string without_values(const std::string& error) {
  std::string kind;
  bool quoted = false;
  for (const char c : error) {
    if (c == '\'') quoted = !quoted;
    if (!quoted && c != '\'' && (c < '0' || c > '9')) kind += c;
  }
  return kind;
}

class Mutations : public testing::Test {
 protected:
  std::string original() const { return minimal_text(); }
  /// With TEST_CORPUS=FILE the first text of each kind of answer is written there.
  void keep(const std::string& text) {
    static std::set<std::string> kinds;
    const char* file = std::getenv("TEST_CORPUS");
    if (file == nullptr) return;
    const std::string error = answer(configs_, text);
    const std::string kind = without_values(error);
    const nlohmann::json line = {{"text", text}, {"says", error}};
    if (kinds.insert(kind.substr(0, 60)).second && text.size() < 4000)
      std::ofstream(file, std::ios::app)
          << line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
  }

  TempConfigs configs_;
  Random random_{20250216};
};

/// The interesting ones of earlier searches are answered as they were.
TEST_F(Mutations, OfTheCorpus) {
  std::ifstream corpus(kCorpus);
  int lines = 0;
  for (std::string line; std::getline(corpus, line); ++lines) {
    const nlohmann::json one = nlohmann::json::parse(line);
    // Words may change with the kinds that are shipped; what is accepted may not.
    EXPECT_EQ(answer(configs_, one["text"]) == "good", one["says"] == "good") << one["text"];
    try_load(configs_, one["text"]);
  }
  EXPECT_GT(lines, 20);
}

TEST_F(Mutations, OfValues) {
  int good = 0;
  for (int i = 0; i < mutations_each(); ++i) {
    nlohmann::json document = minimal_json();
    for (size_t changes = 1 + random_() % 3; changes > 0; --changes)
      change_value(document, random_);
    keep(document.dump());
    good += try_load(configs_, document.dump());
  }
  EXPECT_GT(good, 15);
  EXPECT_LT(good, mutations_each() / 2);
}

TEST_F(Mutations, OfBytes) {
  int good = 0;
  for (int i = 0; i < mutations_each(); ++i) {
    std::string text = original();
    for (size_t changes = 1 + random_() % 3; changes > 0; --changes) change_bytes(text, random_);
    keep(text);
    good += try_load(configs_, text);
  }
  EXPECT_GT(good, 15);
  EXPECT_LT(good, 2 * mutations_each() / 3);
}

}  // namespace
}  // namespace harness
