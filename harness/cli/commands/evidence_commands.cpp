#include <cstdio>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/commands/report_files.h"
#include "harness/cli/paths.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/evidence/bundle.h"
#include "harness/evidence/compare_runs.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/explain.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/packed_run.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/evidence/verify.h"
#include "harness/schema/error.h"
#include "reports/markdown/comparison_md.h"

/// Commands that look at a finished run; none of them needs a GPU, LibTorch or the machine that
/// made it.
namespace harness::cli {
namespace fs = std::filesystem;
namespace {

/// A path as a terminal may be given it.
std::string shown(const fs::path& path) { return base::plain_text(path.string()); }

Verification verify_run(const fs::path& run, const std::string& head = "") {
  return verify(run, [](const Results& results) { return render_reports(results); }, head);
}

/// A bundle is handed on as proof: what does not verify is not packed.
void refuse_damaged(const fs::path& run) {
  const Verification found = verify_run(run);
  if (found.ok()) return;
  const EvidenceError& first = found.problems.front();
  throw EvidenceError(first.file(), first.message() + " (" + std::to_string(found.problems.size()) +
                                        " in all: see verify)");
}

/// Derives, renders and seals a run folder again. The raw evidence must match the ledger;
/// what was derived from it may be of another version, or damaged.
int render_again(const fs::path& folder) {
  remove_unfinished(folder);
  const Verification raw = verify_raw(RunFolder(folder));
  if (!raw.problems.empty()) throw EvidenceError(raw.problems.front());
  const bool packed = is_packed(folder);
  if (packed) unpack_run(folder);
  const Written written = write_bundle(
      folder, [](const Results& results) { return render_reports(results); },
      [](const Results& results) { return draw_reports(results); });
  if (packed) pack_run(folder);
  std::printf("%s\nevidence head %s (as before)\nledger head %s%s\n",
              shown(folder / "report.html").c_str(), written.evidence_head.c_str(),
              written.head.c_str(), written.head == raw.head ? " (as before)" : "");
  return 0;
}

/// The results of a run of which nothing was changed, made by whichever version.
Results whole_results(const fs::path& path) {
  const RunFolder run(path);
  const Verification found = verify_files(run);
  if (!found.ok()) throw EvidenceError(found.problems.front());
  return read_results(run);
}

/// Reports of a tar stand beside it, without their evidence.
int render_beside(const fs::path& tar) {
  const fs::path folder = tar.stem();
  const Results results = whole_results(tar);
  if (fs::exists(folder / "run.json"))
    throw ConfigError("the reports of " + tar.string() + " would replace those of the run " +
                      folder.string() + "; call this in another folder");
  std::map<std::string, std::string> files = render_reports(results);
  files.merge(draw_reports(results));
  for (const auto& [name, text] : files) {
    fs::create_directories((folder / name).parent_path());
    write_bytes(folder / name, text);
    std::printf("%s\n", shown(folder / name).c_str());
  }
  return 0;
}

}  // namespace

int verify_command(const Options& options) {
  const Verification found = verify_run(options.target, options.head);
  std::printf("%s", verification_text(found).c_str());
  return found.ok() ? 0 : 6;
}

int explain_command(const Options& options) {
  const fs::path run = options.target.empty() ? newest_run() : fs::path(options.target);
  std::printf("%s", explain(RunFolder(run), options.id).c_str());
  return 0;
}

int report_command(const Options& options) {
  const fs::path target = options.target;
  return fs::is_directory(target) ? render_again(target) : render_beside(target);
}

int compare_command(const Options& options) {
  if (are_report_files(options)) return compare_report_files(options);
  const Results a = whole_results(options.target), b = whole_results(options.against);
  const std::string difference = hardware_difference(a, b);
  if (!difference.empty() && !options.other_hardware)
    throw ConfigError("compare: " + difference + "; --other-hardware compares them all the same");
  const auto tables = comparison_tables(a, b);
  if (options.json)
    std::printf("%s\n", nlohmann::json({{"other_hardware", difference}, {"tables", tables}})
                            .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
                            .c_str());
  else
    std::printf("%s", reports::render_comparison_md(difference, tables).c_str());
  return 0;
}

int bundle_command(const Options& options) {
  fs::path folder = options.target;
  if (!folder.has_filename()) folder = folder.parent_path();
  if (fs::is_directory(folder)) remove_unfinished(folder);
  refuse_damaged(folder);
  if (options.in_place) {
    pack_run(folder);
    std::printf("%s\n", shown(folder / kEvidenceArchive).c_str());
    return 0;
  }
  const fs::path tar =
      options.out.empty() ? fs::path(folder.string() + ".tar") : fs::path(options.out);
  const std::string sha256 = bundle(RunFolder(folder), tar);
  std::printf("%s  %s\n", sha256.c_str(), shown(tar).c_str());
  return 0;
}

}  // namespace harness::cli
