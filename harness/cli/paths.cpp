#include "harness/cli/paths.h"

#include <array>
#include <ctime>
#include <vector>

#include "harness/schema/error.h"

namespace harness::cli {
namespace fs = std::filesystem;

constexpr int kLevelsAbove = 4;  // build/PRESET/bin of a checkout

fs::path program_dir() { return fs::read_symlink("/proc/self/exe").parent_path(); }

fs::path checkout_dir() {
  // build/PRESET/bin/nsa-validate of a checkout; the baked-in path serves build folders elsewhere.
  const fs::path beside = program_dir().parent_path().parent_path().parent_path();
  for (const fs::path& dir : {beside, fs::path(NSA_SOURCE_DIR)})
    if (fs::exists(dir / "tools" / "setup") && fs::exists(dir / "configs")) return dir;
  return {};
}

fs::path configs_dir(const std::string& given) {
  std::vector<fs::path> places;
  if (!given.empty()) {
    places = {given};
  } else {
    places = {program_dir().parent_path() / "configs"};
    if (!checkout_dir().empty()) places.push_back(checkout_dir() / "configs");
  }
  std::string tried;
  for (const fs::path& place : places) {
    if (fs::exists(place / "runbooks") && fs::exists(place / "kinds")) return place;
    tried += (tried.empty() ? "" : ", ") + place.string();
  }
  throw ConfigError("no folder with runbooks/ and kinds/ at " + tried +
                    "; name one with --configs DIR");
}

fs::path data_dir() {
  // As the trainer looks for a corpus: here, then beside the program and above it.
  std::error_code error;
  fs::path here = fs::current_path() / ".data";
  if (fs::exists(here, error)) return here;
  fs::path above = program_dir();
  for (int level = 0; level < kLevelsAbove && above.has_parent_path(); ++level) {
    if (fs::exists(above / ".data", error)) return above / ".data";
    above = above.parent_path();
  }
  return here;
}

namespace {

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return text.data();
}

/// Whether `folder` is new: false where something of that name was there before.
bool create(const fs::path& folder) {
  std::error_code error, ignored;
  const bool created = fs::create_directory(folder, error);
  if (error && !fs::exists(folder, ignored))
    throw Error("cannot create " + folder.string() + ": " + error.message() +
                "; name a folder that can be written with --out DIR");
  return created;
}

}  // namespace

fs::path new_run_folder(const std::string& runbook) {
  const fs::path runs = "runs";
  create(runs);
  const std::string name = runbook + "-" + time_text();
  fs::path folder = runs / name;
  for (int number = 2; !create(folder); ++number)
    folder = runs / (name + "-" + std::to_string(number));
  return folder;
}

void require_working_directory() {
  std::error_code error;
  if (const fs::path here = fs::current_path(error); here.empty())
    throw ConfigError("the working directory cannot be used: " + error.message() +
                      "; change to a folder that exists (cd DIR) and run again");
}

fs::path matrices_dir() {
  const fs::path checkout = checkout_dir();
  return (checkout.empty() ? fs::current_path() : checkout) / ".selftest";
}

fs::path newest_run() {
  fs::path newest;
  fs::file_time_type when{};
  if (fs::is_directory("runs")) {
    for (const auto& entry : fs::directory_iterator("runs")) {
      const fs::path results = entry.path() / "results.json";
      if (fs::exists(results) && (newest.empty() || fs::last_write_time(results) > when)) {
        newest = entry.path();
        when = fs::last_write_time(results);
      }
    }
  }
  if (newest.empty()) throw ConfigError("no finished run in runs/; name a run folder or tar");
  return newest;
}

}  // namespace harness::cli
