#include "harness/provenance/build/build_id.h"

#include <algorithm>
#include <array>

#include "base/files/whole_file.h"
#include "base/hash/sha256.h"
#include "harness/evidence/storage/files.h"
#include "harness/provenance/build/elf_note.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace harness {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr std::array<const char*, 6> kFolders = {"base", "cmake",   "harness",
                                                 "nsa",  "reports", "suites"};
constexpr std::array<const char*, 2> kFiles = {"CMakeLists.txt", "CMakePresets.json"};

bool is_source(const fs::path& relative) {
  const std::string name = relative.filename().string();
  return !name.starts_with(".") && !name.ends_with("~") && !name.ends_with(".md") &&
         !name.ends_with(".orig") && !name.ends_with(".rej") &&
         !relative.generic_string().starts_with("reports/samples/");
}

void hash_folder(const fs::path& checkout, const char* folder, FileHashes& files) {
  if (!fs::is_directory(checkout / folder)) return;
  for (const auto& item : fs::recursive_directory_iterator(checkout / folder)) {
    const fs::path relative = item.path().lexically_relative(checkout);
    if (item.is_regular_file() && is_source(relative))
      files[relative.generic_string()] = sha256_file(item.path());
  }
}

/// Keys whose values differ, or that only one map has.
std::vector<std::string> differing(const FileHashes& a, const FileHashes& b) {
  std::vector<std::string> names;
  for (const auto& [path, hash] : a)
    if (const auto it = b.find(path); it == b.end() || it->second != hash) names.push_back(path);
  for (const auto& [path, hash] : b)
    if (!a.contains(path)) names.push_back(path);
  std::sort(names.begin(), names.end());
  return names;
}

/// What a run of nsa-validate starts in every build.
constexpr std::array<const char*, 2> kRequired = {"nsa-validate", "nsa-worker"};

/// Programs beside build_id.json that are not those it names: by note, by content, or because it
/// does not list them. A missing program is not one of them.
std::vector<std::string> other_programs(const fs::path& folder, const BuildId& built) {
  std::vector<std::string> names;
  for (const auto& [path, id] : built.programs) {
    if (!fs::exists(folder / path)) continue;
    const auto content = built.contents.find(path);
    if (gnu_build_id(folder / path) != id || content == built.contents.end() ||
        content->second != sha256_file(folder / path))
      names.push_back(path);
  }
  for (const char* program : kRequired)
    if (fs::exists(folder / program) && !built.programs.contains(program))
      names.emplace_back(program);
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 5); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 5) text += " and " + std::to_string(names.size() - 5) + " more";
  return text;
}

std::string problem_of(const BuildIdCheck& check, bool has_checkout) {
  if (check.built.empty())
    return "no build_id.json beside the programs: what they were built from is unknown; build the "
           "default target";
  if (!check.differing_programs.empty())
    return "these programs are not those of the recorded build: " +
           listed(check.differing_programs) + "; build the default target";
  if (!has_checkout)
    return "no checkout: commit recorded at build time: " +
           (check.commit.empty() ? "unknown" : check.commit);
  if (!check.differing_files.empty())
    return "the programs were not built from these files as they are now: " +
           listed(check.differing_files) + "; build again";
  return check.equal
             ? ""
             : "build_id.json contradicts itself: its id is not that of its files; build again";
}

}  // namespace

FileHashes hash_sources(const fs::path& checkout) {
  FileHashes files;
  for (const char* file : kFiles)
    if (fs::is_regular_file(checkout / file)) files[file] = sha256_file(checkout / file);
  for (const char* folder : kFolders) hash_folder(checkout, folder, files);
  return files;
}

FileHashes hash_files(const fs::path& folder) {
  FileHashes files;
  for (const auto& item : fs::recursive_directory_iterator(folder))
    if (item.is_regular_file() && base::whole_of(item.path().filename().string()).empty())
      files[item.path().lexically_relative(folder).generic_string()] = sha256_file(item.path());
  return files;
}

std::string build_id_of(const FileHashes& files, const std::string& compiler,
                        const std::string& flags) {
  std::string text;
  for (const auto& [path, hash] : files) text += hash + "  " + path + "\n";
  return base::sha256_hex(text + "compiler " + compiler + "\nflags " + flags + "\n");
}

void add_program(BuildId& id, const fs::path& folder, const std::string& path) {
  id.programs[path] = gnu_build_id(folder / path);
  id.contents[path] = sha256_file(folder / path);
}

void keep_known_programs(BuildId& id, const fs::path& folder) try {
  const std::optional<BuildId> before = read_build_id(folder);
  if (!before || before->id != id.id) return;
  for (const auto& [path, content] : before->contents)
    if (!id.programs.contains(path) && fs::exists(folder / path) &&
        sha256_file(folder / path) == content)
      add_program(id, folder, path);
} catch (const Error&) {
  return;  // nothing can be taken from a damaged file
}

void refresh_contents(const fs::path& folder) {
  std::optional<BuildId> id = read_build_id(folder);
  if (!id) throw Error("no build_id.json in " + folder.string());
  for (const auto& [path, note] : id->programs) {
    if (!fs::exists(folder / path)) continue;
    if (gnu_build_id(folder / path) != note)
      throw Error((folder / path).string() + " is not the program of build_id.json");
    id->contents[path] = sha256_file(folder / path);
  }
  write_bytes(folder / "build_id.json", pretty_dump(to_json(*id)));
}

json to_json(const BuildId& id) {
  return {{"schema", "nsa-build-id/1"}, {"build_id", id.id},   {"compiler", id.compiler},
          {"flags", id.flags},          {"files", id.files},   {"programs", id.programs},
          {"contents", id.contents},    {"commit", id.commit}, {"dirty", id.dirty}};
}

std::optional<BuildId> read_build_id(const fs::path& folder) {
  const fs::path file = folder / "build_id.json";
  if (!fs::exists(file)) return std::nullopt;
  try {
    const json value = json::parse(read_bytes(file));
    return BuildId{
        value.at("build_id").get<std::string>(), value.at("compiler").get<std::string>(),
        value.at("flags").get<std::string>(),    value.at("files").get<FileHashes>(),
        value.at("programs").get<FileHashes>(),  value.value("contents", FileHashes()),
        value.at("commit").get<std::string>(),   value.at("dirty").get<std::vector<std::string>>()};
  } catch (const json::exception& e) {
    throw Error(file.string() + " is damaged (" + e.what() + "); build again");
  }
}

BuildIdCheck check_build_id(const fs::path& folder, const std::optional<fs::path>& checkout) {
  BuildIdCheck check;
  const std::optional<BuildId> built = read_build_id(folder);
  if (built) {
    check.built = built->id;
    check.commit = built->commit;
    check.differing_programs = other_programs(folder, *built);
    if (checkout) {
      const FileHashes now = hash_sources(*checkout);
      check.checkout = build_id_of(now, built->compiler, built->flags);
      check.differing_files = differing(built->files, now);
    }
    const bool sound = built->id == build_id_of(built->files, built->compiler, built->flags);
    check.installed = !checkout && sound && check.differing_programs.empty();
    check.equal =
        !check.built.empty() && check.built == check.checkout && check.differing_programs.empty();
  }
  check.problem = problem_of(check, checkout.has_value());
  return check;
}

json to_json(const BuildIdCheck& check) {
  return {{"built", check.built},
          {"checkout", check.checkout},
          {"equal", check.equal},
          {"installed", check.installed},
          {"differing_files", check.differing_files},
          {"differing_programs", check.differing_programs},
          {"commit", check.commit},
          {"problem", check.problem}};
}

}  // namespace harness
