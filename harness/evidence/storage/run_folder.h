#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace harness {

/// In a run folder: its other files as one archive (packed_run.h).
inline constexpr const char* kEvidenceArchive = "evidence.tar.xz";

/// Throws ConfigError when nothing is at `path`: a wrong name is no damaged evidence.
void require_path(const std::filesystem::path& path);

/// Read access to the files of a run: from its folder, together with what its kEvidenceArchive
/// holds, or from the tar (also compressed by gzip or xz) that `bundle` made of it.
class RunFolder {
 public:
  /// Throws ConfigError when there is no `path`, EvidenceError when it is neither a folder nor a
  /// readable tar.
  explicit RunFolder(const std::filesystem::path& path);

  /// Relative paths with '/', sorted; regular files only.
  const std::vector<std::string>& paths() const { return paths_; }

  /// What is in the folder but no regular file (links, pipes) or has a name that is not UTF-8, as
  /// JSON strings: evidence cannot rest on it.
  const std::vector<std::string>& odd_paths() const { return odd_paths_; }

  bool has(const std::string& path) const { return members_.contains(path); }
  int64_t bytes(const std::string& path) const;

  /// Content of one file. Throws EvidenceError naming it when it is missing or unreadable.
  std::string read(const std::string& path) const;

  /// Content as JSON. Throws EvidenceError with line and column when it is cut off or not JSON.
  nlohmann::json read_json(const std::string& path) const;

  std::string sha256(const std::string& path) const;

  const std::filesystem::path& where() const { return where_; }

 private:
  struct Member {
    std::filesystem::path file;  ///< empty: a part of archive_
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  void list_folder();
  void list_tar(const std::filesystem::path& archive);

  std::filesystem::path where_;
  std::map<std::string, Member> members_;
  std::shared_ptr<const std::string> archive_;  ///< an archive that had to be unpacked
  std::vector<std::string> paths_, odd_paths_;
};

/// The named files of `run` as one deterministic tar, below a folder named like the run (run.json),
/// compressed as `name` ends: .gz, .xz, anything else not at all.
std::string archive_of(const RunFolder& run, const std::vector<std::string>& paths,
                       const std::filesystem::path& name);

/// Writes all files of `run` as such an archive, and returns
/// the sha256 of the archive. Throws Error when `out` cannot be written, which leaves no half
/// archive, and ConfigError when it would lie inside of the run.
std::string bundle(const RunFolder& run, const std::filesystem::path& out);

}  // namespace harness
