// ingest FILE, and compare of two such files: anybody's Google Benchmark and GoogleTest JSON.
#include "harness/ingest/report_file.h"

#include <cstdio>

#include "harness/cli/commands/commands.h"
#include "harness/cli/commands/report_files.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/schema/error.h"
#include "reports/markdown/ingested_md.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

int shown(const IngestedFile& file, const char* title, bool as_json) {
  if (as_json)
    std::printf("%s\n", nlohmann::json({{"tables", file.tables},
                                        {"deviations", file.deviations},
                                        {"problem", file.problem}})
                            .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
                            .c_str());
  else
    std::printf(
        "%s",
        reports::render_ingested_md(title, file.problem, file.deviations, file.tables).c_str());
  return file.problem.empty() ? 0 : 1;
}

BenchmarkFile benchmarks_of(const std::string& path) {
  const nlohmann::json report = nlohmann::json::parse(read_bytes(path), nullptr, false);
  if (!is_benchmark_report(report))
    throw ConfigError("compare: " + path +
                      " is no report of Google Benchmark (--benchmark_out=FILE), and no run");
  return read_benchmark_file(report, path);
}

}  // namespace

int ingest_command(const Options& options) {
  require_path(options.target);
  return shown(ingest_file(read_bytes(options.target), options.target), "What the file holds",
               options.json);
}

bool are_report_files(const Options& options) {
  return fs::path(options.target).extension() == ".json" &&
         fs::path(options.against).extension() == ".json";
}

int compare_report_files(const Options& options) {
  return shown(
      compare_benchmark_files(benchmarks_of(options.target), benchmarks_of(options.against)),
      "New beside old", options.json);
}

}  // namespace harness::cli
