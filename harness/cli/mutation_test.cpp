/// Damaged runs: whatever is changed in the files of a finished run, every command that reads it
/// gives its answer or a clear error; never a crash, a hang or another exception.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "harness/cli/rendering.h"
#include "harness/cli/testing.h"
#include "harness/evidence/derive.h"
#include "harness/evidence/error.h"
#include "harness/evidence/explain.h"
#include "harness/evidence/files.h"
#include "harness/evidence/temp_dir.h"
#include "harness/evidence/verify.h"
#include "harness/runbook/mutate.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// TEST_MUTATIONS=10000 tries as many.
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

/// What reads a run: 1 when it answers, 0 when it refuses with an error of ours.
template <class Read>
int answers(Read read, const std::string& trace) {
  try {
    read();
    return 1;
  } catch (const Error& e) {
    expect_readable(e, trace);
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
  }

  /// Changes one file, reads the run in every way, puts the file back.
  void try_one(int number) {
    const fs::path file = files_[random_() % files_.size()];
    const std::string before = read_bytes(file);
    std::string text = before;
    for (size_t changes = 1 + random_() % 2; changes > 0; --changes) {
      if (random_() % 2 == 0)
        change_bytes(text, random_);
      else
        text = with_changed_value(text, random_);
    }
    write(file, text);
    const std::string trace =
        "mutation " + std::to_string(number) + " of " + file.filename().string();
    answers(
        [&] {
          const auto found =
              verify(dir_.path(), [](const Results& r) { return render_reports(r); });
          if (text != before && found.ok()) ADD_FAILURE() << trace << ": verifies";
        },
        trace);
    const int derived = answers([&] { render_reports(derive(dir_.path())); }, trace);
    answers([&] { render_reports(read_results(RunFolder(dir_.path()))); }, trace);
    answers([&] { explain(RunFolder(dir_.path()), "C-SPEED"); }, trace);
    (derived != 0 ? read_ : refused_)++;
    write(file, before);
  }

  static void write(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  }

  TempDir dir_;
  std::vector<fs::path> files_;
  Random random_{20250216};
  int read_ = 0, refused_ = 0;
};

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
