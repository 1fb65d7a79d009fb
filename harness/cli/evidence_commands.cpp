#include <cstdio>

#include "harness/cli/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/rendering.h"
#include "harness/evidence/derive.h"
#include "harness/evidence/explain.h"
#include "harness/evidence/files.h"
#include "harness/evidence/run_folder.h"
#include "harness/evidence/verify.h"

/// Commands that look at a finished run; none of them needs a GPU, LibTorch or the machine that
/// made it.
namespace harness::cli {
namespace fs = std::filesystem;
namespace {

Verification verify_run(const fs::path& run, const std::string& head = "") {
  return verify(run, [](const Results& results) { return render_reports(results); }, head);
}

/// A bundle is handed on as proof, so what does not verify is packed on explicit wish only.
void refuse_damaged(const fs::path& run) {
  const Verification found = verify_run(run);
  if (found.ok()) return;
  const EvidenceError& first = found.problems.front();
  throw EvidenceError(first.file(), first.message() + " (" + std::to_string(found.problems.size()) +
                                        " in all: see verify); --damaged packs the run as it is");
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
  const fs::path folder = fs::is_directory(target) ? target : fs::path(target.stem());
  fs::create_directories(folder);
  for (const auto& [name, text] : render_reports(read_results(RunFolder(target)))) {
    write_bytes(folder / name, text);
    std::printf("%s\n", (folder / name).c_str());
  }
  return 0;
}

int bundle_command(const Options& options) {
  fs::path folder = options.target;
  if (!folder.has_filename()) folder = folder.parent_path();
  const fs::path tar =
      options.out.empty() ? fs::path(folder.string() + ".tar") : fs::path(options.out);
  if (!options.damaged) refuse_damaged(folder);
  const std::string sha256 = bundle(RunFolder(folder), tar);
  std::printf("%s  %s\n", sha256.c_str(), tar.c_str());
  return 0;
}

}  // namespace harness::cli
