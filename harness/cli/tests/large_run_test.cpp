#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>

#include "base/testing/paths.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/evidence/bundle.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/packed_run.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/verify.h"

/// How long it takes to close and to prove a large run. Processor time, own and of gnuplot, so that
/// a busy machine does not decide.
namespace harness::cli {
namespace {

namespace fs = std::filesystem;

double cpu_seconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime})
      sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

/// No sample may be repeated: each copy is a round of its own.
std::string in_round(std::string lines, int round) {
  const std::string before = "\"round\":0", now = "\"round\":" + std::to_string(round);
  for (size_t at = lines.find(before); at != std::string::npos; at = lines.find(before, at + 1))
    lines.replace(at, before.size(), now);
  return lines;
}

/// A copy of a sample run with the lines of its training repeated until it holds `samples` samples.
size_t write_large_run(const fs::path& folder, size_t samples) {
  fs::copy(base::source_dir() + "/reports/samples/smoke_cpu", folder, fs::copy_options::recursive);
  if (is_packed(folder)) unpack_run(folder);
  const fs::path raw = folder / "phases/train_text/g01.jsonl";
  std::vector<std::string> lines;
  const std::string text = read_bytes(raw);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  std::string repeated, out = lines.front();
  size_t in_one = 0, line_count = lines.size() - 1, written = 0;
  for (const std::string& line : lines) {
    const bool sample = line.find("\"type\":\"sample\"") != std::string::npos;
    if (!sample && line.find("\"at\":\"step\"") == std::string::npos) continue;
    repeated += line;
    in_one += sample ? 1 : 0;
  }
  const auto repeated_lines = static_cast<size_t>(std::ranges::count(repeated, '\n'));
  for (int round = 1; written < samples; ++round, written += in_one, line_count += repeated_lines)
    out += in_round(repeated, round);
  for (size_t i = 1; i + 1 < lines.size(); ++i) out += lines[i];
  out += "{\"lines\":" + std::to_string(line_count) + ",\"t\":99,\"type\":\"done\"}\n";
  write_bytes(raw, out);
  return written;
}

/// Times are printed; with TEST_SPEED=1, on a quiet machine, they are held to 2 and 5 s of CPU
/// time.
TEST(LargeRun, IsRenderedAndProved) {
  const TempDir dir;
  const fs::path run = dir / "run";
  const size_t samples = write_large_run(run, 10'000);
  ASSERT_GE(samples, 10'000U);
  const ReportRenderer render = [](const Results& results) { return render_reports(results); };
  const double begin = cpu_seconds();
  const Written written =
      write_bundle(run, render, [](const Results& results) { return draw_reports(results); });
  const double closed = cpu_seconds();
  const Verification found = verify(run, render);
  const double proved = cpu_seconds();
  EXPECT_TRUE(written.problems.empty()) << written.problems.front().what();
  EXPECT_TRUE(found.ok()) << verification_text(found);
  RecordProperty("samples", static_cast<int>(samples));
  std::printf("%zu samples: derived, rendered, drawn and sealed in %.2f s, verified in %.2f s\n",
              samples, closed - begin, proved - closed);
  if (std::getenv("TEST_SPEED") == nullptr) return;
  EXPECT_LT(closed - begin, 2.0);
  EXPECT_LT(proved - closed, 5.0);
}

}  // namespace
}  // namespace harness::cli
