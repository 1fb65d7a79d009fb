#include "nsa/train/checkpoint/sharded_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/files/whole_file.h"
#include "base/hash/sha256.h"
#include "nsa/program/strict_json.h"

namespace nsa::train {
namespace fs = std::filesystem;
namespace {

using tensor_file::TensorFile;

constexpr const char* kShardedSchema = "nsa-sharded-checkpoint/1";
constexpr const char* kShardedManifestName = "manifest.json";

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw InputError("checkpoint " + path.string() + " " + what +
                   "; restore the file, or remove the folder " + path.parent_path().string() +
                   " to continue from the checkpoint before it");
}

/// The new names in a folder survive a loss of power, too.
void flush_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

nlohmann::json to_json(const ShardFileRecord& record) {
  nlohmann::json pieces = nlohmann::json::object();
  for (const auto& [name, range] : record.pieces) pieces[name] = {range.begin, range.size};
  return {{"file", record.file},
          {"bytes", record.bytes},
          {"sha256", record.sha256},
          {"pieces", pieces}};
}

ShardFileRecord record_of(const nlohmann::json& value, const std::string& where) {
  StrictObject object(value, where);
  ShardFileRecord record{.file = object.required<std::string>("file"),
                         .bytes = object.required<int64_t>("bytes"),
                         .sha256 = object.required<std::string>("sha256")};
  object.ignore("pieces");
  object.finish();
  if (fs::path(record.file).filename() != record.file)
    object.fail(value, "\"file\" must be a name without folders, got \"" + record.file + "\"");
  for (const auto& [name, range] : value.at("pieces").items())
    record.pieces[name] = {range.at(0).get<int64_t>(), range.at(1).get<int64_t>()};
  return record;
}

RunIdentity run_of(const nlohmann::json& value) {
  RunIdentity run;
  for (const auto& [key, text] : value.items())
    run[key] = text.is_string() ? text.get<std::string>() : text.dump();
  return run;
}

ShardedManifest parse_manifest(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, "is missing or cannot be read");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  try {
    const nlohmann::json value = parse_strict_json(text, path.string());
    StrictObject object(value, path.string(), text);
    const auto schema = object.required<std::string>("schema");
    if (schema != kShardedSchema)
      object.fail(value, "\"schema\" must be " + std::string(kShardedSchema));
    ShardedManifest manifest{.step = object.required<int64_t>("step"),
                             .ranks = object.required<int64_t>("ranks")};
    for (const char* key : {"run", "common", "shards"}) object.ignore(key);
    object.finish();
    manifest.run = run_of(value.at("run"));
    manifest.common = record_of(value.at("common"), path.string());
    for (const nlohmann::json& shard : value.at("shards"))
      manifest.shards.push_back(record_of(shard, path.string()));
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    fail(path, std::string("is damaged: ") + error.what());
  } catch (const InputError& error) {
    fail(path, std::string("is damaged: ") + error.what());
  }
}

/// Why the bytes of a file are others than the manifest lists, from what it states of itself.
std::string why_foreign(const TensorFile& file, const ShardedManifest& manifest,
                        const std::string& name) {
  const auto text = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? std::string("unknown") : found->second;
  };
  const nlohmann::json run =
      nlohmann::json::parse(text("run"), nullptr, /*allow_exceptions=*/false);
  const std::string other = run.is_object() ? first_difference(run_of(run), manifest.run) : "";
  if (!other.empty()) return "is of another run: " + other;
  if (text("step") != std::to_string(manifest.step))
    return "was made behind step " + text("step") + ", the checkpoint behind step " +
           std::to_string(manifest.step);
  if (text("file") != name) return "is " + text("file") + " under another name";
  return "";
}

}  // namespace

RunIdentity identity_of_any_world(RunIdentity run) {
  int64_t rows = 1;
  for (const char* key : {"batch", "accum", "ranks"}) {
    const auto found = run.find(key);
    if (found != run.end()) rows *= std::stoll(found->second);
    run.erase(key);
  }
  for (const char* shape : {"NSA_BATCH_SIZE", "NSA_ACCUM"}) run.erase(shape);
  run["batch x accum x ranks"] = std::to_string(rows);
  return run;
}

std::string shard_file_name(int64_t rank, int64_t ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "rank-%05lld-of-%05lld.safetensors",
                static_cast<long long>(rank), static_cast<long long>(ranks));
  return name;
}

fs::path begin_sharded_checkpoint(const fs::path& dir, int64_t step) {
  fs::path folder = sharded_checkpoint_path(dir, step);
  folder += kPartOfCheckpoint;
  std::error_code error;
  remove_folder(folder, error);
  if (!error) fs::create_directory(folder, error);
  if (error)
    throw InputError("checkpoint folder " + folder.string() + " cannot be made: " +
                     error.message() + "; make room, or name a folder that can be written");
  return folder;
}

ShardFileRecord write_shard(const fs::path& folder, const std::string& name, const ShardHead& head,
                            const std::map<std::string, tensor_file::FileTensor>& tensors,
                            const std::map<std::string, ElementRange>& pieces) {
  const fs::path path = folder / name;
  try {
    tensor_file::write_tensor_file(path, {{{"file", name},
                                           {"step", std::to_string(head.step)},
                                           {"run", nlohmann::json(head.run).dump()}},
                                          tensors});
    return {name, static_cast<int64_t>(fs::file_size(path)), base::sha256_file(path), pieces};
  } catch (const std::runtime_error& error) {
    throw InputError("checkpoint " + std::string(error.what()));
  }
}

void finish_sharded_checkpoint(const fs::path& dir, const ShardedManifest& manifest) {
  const fs::path path = sharded_checkpoint_path(dir, manifest.step);
  fs::path folder = path;
  folder += kPartOfCheckpoint;
  nlohmann::json shards = nlohmann::json::array();
  for (const ShardFileRecord& shard : manifest.shards) shards.push_back(to_json(shard));
  const nlohmann::json value = {{"schema", kShardedSchema},
                                {"step", manifest.step},
                                {"ranks", manifest.ranks},
                                {"run", manifest.run},
                                {"common", to_json(manifest.common)},
                                {"shards", shards}};
  try {
    base::write_whole_file(folder / kShardedManifestName, value.dump(1) + "\n");
    flush_folder(folder);
    fs::rename(folder, path);
  } catch (const std::runtime_error& error) {
    throw InputError("checkpoint " + path.string() + " cannot be written: " + error.what());
  }
  flush_folder(dir);
}

ShardedManifest read_sharded_manifest(const fs::path& folder, const RunIdentity& run) {
  const fs::path path = folder / kShardedManifestName;
  ShardedManifest manifest = parse_manifest(path);
  require_same_run(folder, manifest.run, run, manifest.step);
  if (sharded_checkpoint_path(folder.parent_path(), manifest.step) != folder)
    fail(path, "was made behind step " + std::to_string(manifest.step));
  if (manifest.shards.size() != static_cast<size_t>(manifest.ranks))
    fail(path, "is damaged: it lists " + std::to_string(manifest.shards.size()) + " shards of " +
                   std::to_string(manifest.ranks) + " ranks");
  std::vector<ShardFileRecord> all = manifest.shards;
  all.push_back(manifest.common);
  for (const ShardFileRecord& record : all) {
    std::error_code error;
    if (!fs::is_regular_file(folder / record.file, error)) fail(folder / record.file, "is missing");
  }
  return manifest;
}

std::map<std::string, tensor_file::FileTensor> read_shard(const fs::path& folder,
                                                          const ShardedManifest& manifest,
                                                          const ShardFileRecord& record) {
  const fs::path path = folder / record.file;
  std::string sha256, unreadable;
  int64_t bytes = 0;
  TensorFile file;
  try {
    bytes = static_cast<int64_t>(fs::file_size(path));
    sha256 = base::sha256_file(path);
    file = tensor_file::read_tensor_file(path);
  } catch (const std::runtime_error& error) {
    unreadable = error.what();
  }
  if (sha256 != record.sha256) {
    const std::string foreign = unreadable.empty() ? why_foreign(file, manifest, record.file) : "";
    if (!foreign.empty()) fail(path, foreign);
    if (bytes != record.bytes)
      fail(path, "is damaged: it has " + std::to_string(bytes) + " bytes, its manifest lists " +
                     std::to_string(record.bytes));
    fail(path, "is damaged: its sha256 is " + sha256 + ", its manifest lists " + record.sha256);
  }
  if (!unreadable.empty()) fail(path, "is damaged: " + unreadable);
  return std::move(file.tensors);
}

std::string to_text(const ShardFileRecord& record) { return to_json(record).dump(); }

ShardFileRecord shard_record_of_text(const std::string& text) {
  return record_of(nlohmann::json::parse(text), "a record of a shard");
}

}  // namespace nsa::train
