#include "harness/evidence/storage/packed_run.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/run_folder.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

/// What is rendered from the evidence, and the ledger that covers both. It stays outside of the
/// archive, so that rendering a run again leaves the bytes of the archive alone.
bool stays(const std::string& path) {
  constexpr std::array<std::string_view, 7> kRendered = {
      "report.md", "report.html",  "summary.md",  "comment.md",
      "junit.xml", "results.json", "ledger.jsonl"};
  return std::ranges::find(kRendered, path) != kRendered.end() || path.starts_with("plots/");
}

/// Folders that are left without a file.
void remove_empty_folders(const fs::path& run) {
  std::vector<fs::path> folders;
  for (const auto& item : fs::recursive_directory_iterator(run))
    if (item.is_directory()) folders.push_back(item.path());
  for (auto it = folders.rbegin(); it != folders.rend(); ++it)
    if (fs::is_empty(*it)) fs::remove(*it);
}

}  // namespace

bool is_packed(const fs::path& run) { return fs::exists(run / kEvidenceArchive); }

void pack_run(const fs::path& run) {
  const RunFolder whole(run);
  if (!whole.odd_paths().empty())
    throw EvidenceError(whole.odd_paths().front(),
                        "is a link, a pipe or has a name that is not UTF-8; remove it");
  std::vector<std::string> packed;
  for (const std::string& path : whole.paths())
    if (!stays(path)) packed.push_back(path);
  write_bytes(run / kEvidenceArchive, archive_of(whole, packed, kEvidenceArchive));
  for (const std::string& path : packed) fs::remove(run / path);
  remove_empty_folders(run);
}

void unpack_run(const fs::path& run) {
  const RunFolder whole(run);
  for (const std::string& path : whole.paths()) {
    if (fs::exists(run / path)) continue;
    fs::create_directories((run / path).parent_path());
    write_bytes(run / path, whole.read(path));
  }
  fs::remove(run / kEvidenceArchive);
}

}  // namespace harness
