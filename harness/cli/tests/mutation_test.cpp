/// Damaged runs: whatever is changed in the files of a finished run, every command that reads it
/// gives its answer or a clear error; never a crash, a hang or another exception.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "base/protocol/lines.h"
#include "base/testing/paths.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/cli/testing.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/error.h"
#include "harness/evidence/explain.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/verify.h"
#include "harness/runbook/mutate.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kCorpus = base::source_dir() + "/harness/cli/tests/testdata/mutated_runs.jsonl";
constexpr size_t kLongestKept = 2500, kLongestKind = 70;

/// TEST_MUTATIONS=10000 tries as many (tools/soak does, under the sanitizers).
int mutations() {
  const char* text = std::getenv("TEST_MUTATIONS");
  return text == nullptr ? 300 : std::atoi(text);
}

/// One changed value somewhere in a JSON file, or in one line of a JSON-lines file.
std::string with_changed_value(const std::string& text, Random& random) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  json whole = json::parse(text, nullptr, false);
  if (!whole.is_discarded()) {
    change_value(whole, random);
    return whole.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  }
  std::string& line = lines[random() % lines.size()];
  json one = json::parse(line, nullptr, false);
  if (one.is_discarded()) return text;
  change_value(one, random);
  line = one.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string changed;
  for (const std::string& each : lines) changed += each + "\n";
  return changed;
}

/// An error that a user can read: one printable text of some length.
void expect_readable(const std::exception& error, const std::string& trace) {
  const std::string text = error.what();
  EXPECT_GT(text.size(), 10u) << trace;
  EXPECT_LT(text.size(), 4000u) << trace;
}

/// 1 when `read` returns, 0 when it refuses with an error of this project, which `error` gets.
template <class Read>
int answers(Read read, const std::string& trace, std::string* error = nullptr) {
  try {
    read();
    return 1;
  } catch (const Error& e) {
    expect_readable(e, trace);
    if (error != nullptr) *error = e.what();
  }
  return 0;
}

class RunMutations : public testing::Test {
 protected:
  void SetUp() override {
    finish_run(dir_.path());
    for (const auto& file : fs::recursive_directory_iterator(dir_.path()))
      if (file.is_regular_file()) files_.push_back(file.path());
    std::sort(files_.begin(), files_.end());
    for (const fs::path& file : files_)
      if (name_of(file).starts_with("phases/") || file.filename() == "results.json")
        worker_files_.push_back(file);
  }

  /// Changes one file and reads the run. Every other time the file is evidence of a worker or
  /// results.json.
  void try_one(int number) {
    const std::vector<fs::path>& pool = number % 2 == 0 ? worker_files_ : files_;
    const fs::path file = pool[random_() % pool.size()];
    const std::string before = read_bytes(file);
    std::string text = before;
    for (size_t changes = 1 + random_() % 2; changes > 0; --changes) {
      if (random_() % 2 == 0)
        change_bytes(text, random_);
      else
        text = with_changed_value(text, random_);
    }
    try_text(file, text, "mutation " + std::to_string(number) + " of " + name_of(file));
  }

  /// Reads the run in every way with `text` in `file`, and puts the file back. Returns the
  /// error of deriving it anew, "" when it gives results.
  std::string try_text(const fs::path& file, const std::string& text, const std::string& trace) {
    const std::string before = read_bytes(file);
    write(file, text);
    answers(
        [&] {
          const auto found =
              verify(dir_.path(), [](const Results& r) { return render_reports(r); });
          if (text != before && found.ok()) ADD_FAILURE() << trace << ": verifies";
        },
        trace);
    std::string error;
    const int derived = answers([&] { render_reports(derive(dir_.path())); }, trace, &error);
    answers([&] { render_reports(read_results(RunFolder(dir_.path()))); }, trace);
    answers([&] { explain(RunFolder(dir_.path()), "C-SPEED"); }, trace);
    (derived != 0 ? read_ : refused_)++;
    write(file, before);
    keep(file, text, error);
    return error;
  }

  /// With TEST_CORPUS=FILE the first text of each kind of error is written there.
  void keep(const fs::path& file, const std::string& text, const std::string& error) {
    const char* corpus = std::getenv("TEST_CORPUS");
    if (corpus == nullptr || text.size() > kLongestKept) return;
    const std::string what = error + broken_rule(file, text);
    std::string kind = file.extension().string();
    for (const char c : what)
      if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
    if (!kept_.insert(kind.substr(0, kLongestKind)).second) return;
    const json line = {{"file", name_of(file)}, {"text", text}, {"says", error}};
    std::ofstream(corpus, std::ios::app)
        << line.dump(-1, ' ', true, json::error_handler_t::replace) << "\n";
  }

  /// The first rule of the protocol that a worker's lines break; empty when none, or not its lines.
  static std::string broken_rule(const fs::path& file, const std::string& text) {
    if (file.extension() != ".jsonl" || !file.filename().string().starts_with("g")) return "";
    const auto broken =
        base::protocol::read_transcript(text, {.mode = "time", .cases = {}}).violations;
    for (const auto& violation : broken)
      if (violation.name != "FOREIGN_CASE") return violation.name + " " + violation.detail;
    return "";
  }

  std::string name_of(const fs::path& file) const {
    return file.lexically_relative(dir_.path()).generic_string();
  }

  static void write(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  }

  TempDir dir_;
  std::vector<fs::path> files_, worker_files_;
  std::set<std::string> kept_;
  Random random_{20250216};
  int read_ = 0, refused_ = 0;
};

/// The interesting ones of earlier searches are read, or refused, as they were.
TEST_F(RunMutations, OfTheCorpus) {
  std::ifstream corpus(kCorpus);
  int lines = 0;
  for (std::string line; std::getline(corpus, line); ++lines) {
    const json one = json::parse(line);
    const std::string error =
        try_text(dir_.path() / one["file"], one["text"], "line " + std::to_string(lines + 1));
    EXPECT_EQ(error.empty(), one["says"] == "") << one["file"] << ": " << error;
  }
  EXPECT_GT(lines, 20);
}

/// Files that nest without end: nlohmann copies and prints by recursion.
TEST_F(RunMutations, OfDepth) {
  const std::string deep = std::string(1 << 18, '[') + std::string(1 << 18, ']') + "\n";
  for (const fs::path& file : files_) {
    try_text(file, deep, name_of(file));
    try_text(file, "{\"id\":" + deep + "}", name_of(file));
  }
}

TEST_F(RunMutations, AreSeenAndNeverCrash) {
  for (int i = 0; i < mutations(); ++i) try_one(i);
  std::printf("mutations: %d read, %d refused, every one seen by verify\n", read_, refused_);
  EXPECT_GT(read_, 0);
  EXPECT_GT(refused_, 0);
  const auto found = verify(dir_.path(), [](const Results& r) { return render_reports(r); });
  EXPECT_TRUE(found.ok()) << "every file was put back";
}

}  // namespace
}  // namespace harness::cli
