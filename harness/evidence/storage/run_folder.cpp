#include "harness/evidence/storage/run_folder.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "base/hash/sha256.h"
#include "base/json/depth.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/gzip.h"
#include "harness/evidence/storage/tar.h"
#include "harness/evidence/storage/xz.h"
#include "harness/schema/write.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

/// JSON cannot hold other names, so the ledger cannot either.
bool is_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

/// First part of a path, with its slash: what all members of a bundle share.
std::string top_of(const std::string& path) { return path.substr(0, path.find('/') + 1); }

std::string position(const std::string& text, size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  const size_t begin = std::string(text.begin(), end).rfind('\n');
  const size_t column = byte - (begin == std::string::npos ? 0 : begin + 1);
  return "line " + std::to_string(1 + std::count(text.begin(), end, '\n')) + ", column " +
         std::to_string(std::max<size_t>(column, 1));
}

/// The archive would be a file of the run that is not in its ledger.
void refuse_inside(const fs::path& run, const fs::path& out) {
  std::error_code error;
  const fs::path inside =
      fs::weakly_canonical(out, error).lexically_relative(fs::weakly_canonical(run, error));
  if (fs::is_directory(run, error) && !inside.empty() && *inside.begin() != "..")
    throw ConfigError("the bundle " + out.string() + " would lie inside of the run " +
                      run.string() + "; name a place outside of it with --out");
}

constexpr const char* kNameless = "run";

/// The folder in the archive of a run: its id, where that is one; a damaged run is packed, too.
std::string archive_folder(const RunFolder& run) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  };
  try {
    const nlohmann::json info = run.read_json("run.json");
    const std::string id = info.is_object() && info.contains("id") && info["id"].is_string()
                               ? info["id"].get<std::string>()
                               : "";
    if (!id.empty() && id.front() != '.' && std::ranges::all_of(id, plain)) return id;
  } catch (const EvidenceError&) {
    return kNameless;
  }
  return kNameless;
}

}  // namespace

void require_path(const fs::path& path) {
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::not_found)
    throw ConfigError(path.string() +
                      ": no such file or folder; give the folder of a run (runs/...) or its tar");
}

RunFolder::RunFolder(const fs::path& path) : where_(path) {
  require_path(path);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    try {
      list_folder();
      if (fs::is_regular_file(path / kEvidenceArchive, error)) list_tar(path / kEvidenceArchive);
    } catch (const fs::filesystem_error& e) {
      throw EvidenceError(path.string(), std::string("cannot be read: ") + e.code().message());
    }
  } else if (fs::is_regular_file(path, error)) {
    list_tar(path);
  } else {
    throw EvidenceError(
        path.string(),
        "is neither a run folder nor a bundle; give the folder of a run (--out) or its tar");
  }
  for (const auto& [name, member] : members_) paths_.push_back(name);
  std::sort(odd_paths_.begin(), odd_paths_.end());
}

void RunFolder::list_folder() {
  for (const auto& item : fs::recursive_directory_iterator(where_)) {
    const std::string name = item.path().lexically_relative(where_).generic_string();
    if (name == kEvidenceArchive && !item.is_symlink()) continue;
    if (item.is_symlink() || (!item.is_regular_file() && !item.is_directory()) || !is_utf8(name))
      odd_paths_.push_back(canonical_dump(name));
    else if (item.is_regular_file())
      members_[name] = {item.path(), 0, item.file_size()};
  }
}

/// A file that stands in the folder as well is that of the folder.
void RunFolder::list_tar(const fs::path& archive) {
  const std::string name = archive.filename().string();
  std::ifstream in(archive, std::ios::binary);
  std::string magic(6, '\0');
  in.read(magic.data(), static_cast<std::streamsize>(magic.size()));
  std::vector<TarMember> found;
  const bool compressed = is_gzip(magic) || is_xz(magic);
  if (compressed) {
    const std::string packed = read_bytes(archive);
    archive_ = std::make_shared<const std::string>(is_xz(magic) ? unxz(packed, name)
                                                                : gunzip(packed, name));
    std::istringstream unpacked(*archive_);
    found = read_tar(unpacked, name);
  } else {
    found = read_tar(archive);
  }
  const std::string top = found.empty() ? "" : top_of(found.front().path);
  for (const TarMember& member : found) {
    if (top_of(member.path) != top)
      throw EvidenceError(name, "'" + member.path + "' lies outside of " + top);
    members_.try_emplace(member.path.substr(top.size()),
                         Member{compressed ? fs::path() : archive, member.offset, member.bytes});
  }
}

int64_t RunFolder::bytes(const std::string& path) const {
  const auto it = members_.find(path);
  if (it == members_.end()) throw EvidenceError(path, "is missing");
  return static_cast<int64_t>(it->second.bytes);
}

std::string RunFolder::read(const std::string& path) const {
  const auto it = members_.find(path);
  if (it == members_.end()) throw EvidenceError(path, "is missing");
  if (it->second.file.empty()) return archive_->substr(it->second.offset, it->second.bytes);
  std::ifstream in(it->second.file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(it->second.offset));
  std::string bytes(it->second.bytes, '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    throw EvidenceError(path, "cannot be read");
  return bytes;
}

nlohmann::json RunFolder::read_json(const std::string& path) const {
  const std::string text = read(path);
  if (base::nests_too_deep(text))
    throw EvidenceError(path, "nests deeper than " + std::to_string(base::kMaxDepth) + " levels");
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    const bool cut = e.byte >= text.size();
    throw EvidenceError(path, position(text, e.byte) +
                                  (cut ? ": the file is cut off before its end" : ": is not JSON"));
  }
}

std::string RunFolder::sha256(const std::string& path) const {
  return base::sha256_hex(read(path));
}

std::string archive_of(const RunFolder& run, const std::vector<std::string>& paths,
                       const fs::path& name) {
  const std::string top = archive_folder(run);
  std::string tar;
  for (const std::string& path : paths) {
    const std::string content = run.read(path);
    tar += tar_header(top + "/" + path, content.size()) + content + tar_padding(content.size());
  }
  tar += tar_end();
  if (name.extension() == ".xz") return xz(tar);
  return name.extension() == ".gz" ? gzip(tar) : tar;
}

std::string bundle(const RunFolder& run, const fs::path& out) {
  refuse_inside(run.where(), out);
  try {
    write_bytes(out, archive_of(run, run.paths(), out));
  } catch (const EvidenceError&) {
    throw;
  } catch (const Error& e) {
    throw Error("cannot write the bundle " + out.string() + ": " + e.what() +
                "; check that its folder exists and has space");
  }
  return sha256_file(out);
}

}  // namespace harness
