#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

/// The build id names the sources that programs were built from: sha256 over the sorted lines
/// "SHA256  PATH" of all CMake files and everything below nsa/, harness/, suites/ and reports/,
/// then compiler and flags. No dates, no machine names. It is written at the end of a build to
/// build_id.json beside the programs; README.md describes the file.
namespace harness {

using FileHashes = std::map<std::string, std::string>;  ///< path relative to the checkout -> sha256

struct BuildId {
  std::string id;
  std::string compiler, flags;
  FileHashes files;
  std::map<std::string, std::string>
      programs;  ///< path relative to build_id.json -> GNU build id of the ELF file
  std::map<std::string, std::string> contents;  ///< the same paths -> sha256 of the whole file
  std::string commit;                           ///< at build time; empty when git had none
  std::vector<std::string> dirty;               ///< changed files at build time
};

/// Hashes of the sources below `checkout` that the build id covers. Documentation (*.md), hidden
/// files, editors' backups and recorded runs (reports/samples/) are no sources.
FileHashes hash_sources(const std::filesystem::path& checkout);

/// Hashes of all regular files below `folder`, by their path relative to it. Not of *.part, which a
/// killed base::write_whole_file leaves and no program reads.
FileHashes hash_files(const std::filesystem::path& folder);

std::string build_id_of(const FileHashes& files, const std::string& compiler,
                        const std::string& flags);

/// Records the program at `path` below `folder` as it is now.
void add_program(BuildId& id, const std::filesystem::path& folder, const std::string& path);

/// Takes over the entries of further programs in build_id.json of `folder`, where they still are
/// those and their sources were the same: a target may build fewer than the one before it.
void keep_known_programs(BuildId& id, const std::filesystem::path& folder);

/// Records the contents of programs again after an installation, which changes their search paths
/// and symbols, and so not their GNU build id. Throws Error for one that is another program.
void refresh_contents(const std::filesystem::path& folder);

nlohmann::json to_json(const BuildId& id);

/// build_id.json in `folder`. None when there is no such file; throws Error when it is damaged.
std::optional<BuildId> read_build_id(const std::filesystem::path& folder);

/// Are the programs in `folder` built from the files of `checkout` as they are now?
struct BuildIdCheck {
  std::string built;     ///< id made at build time; empty when there is none
  std::string checkout;  ///< id of the checkout's files; empty without a checkout
  bool equal = false;    ///< both known and equal, and every program is the one that was built
  std::vector<std::string> differing_files;  ///< sources changed, added or removed since the build
  std::vector<std::string> differing_programs;  ///< programs that are not those of the build
  bool installed = false;  ///< no checkout; the programs are those of a sound build_id.json
  std::string commit;      ///< recorded at build time
  std::string problem;     ///< one sentence when not equal, with the remedy
};
BuildIdCheck check_build_id(const std::filesystem::path& folder,
                            const std::optional<std::filesystem::path>& checkout);

nlohmann::json to_json(const BuildIdCheck& check);

}  // namespace harness
