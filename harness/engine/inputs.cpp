#include "harness/engine/inputs.h"

#include <array>

#include "harness/evidence/storage/files.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

constexpr std::array kFiles = {"run.json",
                               "runbook.json",
                               "kinds.json",
                               "plan.json",
                               "environment.json",
                               "baseline.json",
                               "catch_matrix.json",
                               "superseded/results.json",
                               "superseded/ledger.jsonl"};
constexpr uintmax_t kMostKept = 16 << 20;  ///< bytes of a changed file

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(path, error));
}

/// The content of a file; none when there is nothing of that name. What is no file of a sensible
/// size is described.
std::optional<std::string> content_of(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
  if (!is_file(path)) return "(no file)\n";
  const uintmax_t bytes = fs::file_size(path, error);
  if (bytes > kMostKept) return "(" + std::to_string(bytes) + " bytes)\n";
  return read_bytes(path);
}

void write_below(const fs::path& root, const std::string& file, const std::string& text) {
  for (fs::path folder = (root / file).parent_path(); folder != root; folder = folder.parent_path())
    if (fs::is_symlink(folder)) fs::remove(folder);
  fs::create_directories((root / file).parent_path());
  write_bytes(root / file, text);
}

}  // namespace

Inputs::Inputs(fs::path root) : root_(std::move(root)) {
  for (const char* file : kFiles) planned_[file] = content_of(root_ / file);
}

std::vector<std::string> Inputs::restore() {
  std::vector<std::string> changed;
  for (const auto& [file, planned] : planned_) {
    const auto now = content_of(root_ / file);
    if (now == planned && (!planned || is_file(root_ / file))) continue;
    rewritten_.try_emplace(file, now.value_or("(removed)\n"));
    changed.push_back(file);
  }
  // The trace first: a run that is cut off here must not go on as if nothing had been changed.
  for (const auto& [file, text] : rewritten_)
    if (content_of(root_ / "rewritten" / file) != text)
      write_below(root_, "rewritten/" + file, text);
  for (const std::string& file : changed) put_back(file, planned_.at(file));
  return changed;
}

void Inputs::put_back(const std::string& file, const std::optional<std::string>& planned) {
  if (!planned || !is_file(root_ / file)) fs::remove_all(root_ / file);
  if (planned) write_below(root_, file, *planned);
}

}  // namespace harness
