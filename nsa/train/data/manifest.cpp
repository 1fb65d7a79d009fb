#include "nsa/train/data/manifest.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "base/files/whole_file.h"
#include "base/hash/sha256.h"
#include "nsa/program/strict_json.h"

namespace nsa::train {
namespace {

constexpr const char* kSchema = "nsa-corpus/1";

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw InputError("no corpus at " + path.parent_path().string() + " (" + path.string() +
                     " cannot be read); tools/corpus makes local_text, nsa-data one of your own");
  return std::string(std::istreambuf_iterator<char>(in), {});
}

SourceFile read_source(const nlohmann::json& json, const std::string& where,
                       std::string_view text) {
  StrictObject object(json, where, text);
  SourceFile source{object.required<std::string>("file"), object.required<int64_t>("bytes"),
                    object.required<std::string>("sha256")};
  object.finish();
  return source;
}

ShardFile read_shard(const nlohmann::json& json, const std::string& where, std::string_view text) {
  StrictObject object(json, where, text);
  ShardFile shard{object.required<std::string>("file"), object.required<std::string>("split"),
                  object.required<int64_t>("tokens"), object.required<std::string>("sha256")};
  object.finish();
  if (shard.split != "train" && shard.split != "val" && shard.split != "train_answers" &&
      shard.split != "val_answers")
    object.fail(json, "\"split\" must be train or val (of a task with _answers behind it, too), " +
                          std::string("got \"") + shard.split + "\"");
  if (shard.file.empty() || std::filesystem::path(shard.file).filename() != shard.file)
    object.fail(json, "\"file\" must be a name without folders, got \"" + shard.file + "\"");
  if (shard.tokens < 1)
    object.fail(json, "\"tokens\" must be >= 1, got " + std::to_string(shard.tokens));
  return shard;
}

}  // namespace

int64_t Manifest::num_tokens(const std::string& split) const {
  int64_t tokens = 0;
  for (const ShardFile& shard : shards)
    if (shard.split == split) tokens += shard.tokens;
  return tokens;
}

Manifest read_manifest(const std::filesystem::path& dir, std::string* sha256) {
  const std::filesystem::path path = dir / kManifestName;
  const std::string text = read_text(path);
  if (sha256 != nullptr) *sha256 = base::sha256_hex(text);
  const nlohmann::json json = parse_strict_json(text, path.string());
  StrictObject object(json, path.string(), text);
  const auto schema = object.required<std::string>("schema");
  if (schema != kSchema)
    object.fail(json, "\"schema\" must be " + std::string(kSchema) + ", got \"" + schema + "\"");
  Manifest manifest;
  manifest.name = object.required<std::string>("name");
  manifest.vocab = object.required<int64_t>("vocab");
  manifest.end_of_document = object.required<int64_t>("end_of_document");
  manifest.row_tokens = object.optional("row_tokens", manifest.row_tokens);
  manifest.task = object.optional("task", manifest.task);
  for (const auto& source : object.required<nlohmann::json::array_t>("sources"))
    manifest.sources.push_back(read_source(source, path.string(), text));
  for (const auto& shard : object.required<nlohmann::json::array_t>("shards"))
    manifest.shards.push_back(read_shard(shard, path.string(), text));
  object.finish();
  if (manifest.row_tokens < 0 || manifest.row_tokens == 1)
    object.fail(json,
                "\"row_tokens\" must be 0 or >= 2, got " + std::to_string(manifest.row_tokens));
  if (manifest.vocab != 256)
    object.fail(json, "\"vocab\" must be 256 (bytes), got " + std::to_string(manifest.vocab));
  return manifest;
}

void write_manifest(const std::filesystem::path& dir, const Manifest& manifest) {
  nlohmann::ordered_json json = {{"schema", kSchema},
                                 {"name", manifest.name},
                                 {"vocab", manifest.vocab},
                                 {"end_of_document", manifest.end_of_document},
                                 {"sources", nlohmann::ordered_json::array()},
                                 {"shards", nlohmann::ordered_json::array()}};
  if (manifest.row_tokens > 0)
    json["row_tokens"] = manifest.row_tokens, json["task"] = manifest.task;
  for (const SourceFile& s : manifest.sources)
    json["sources"].push_back({{"file", s.file}, {"bytes", s.bytes}, {"sha256", s.sha256}});
  for (const ShardFile& s : manifest.shards)
    json["shards"].push_back(
        {{"file", s.file}, {"split", s.split}, {"tokens", s.tokens}, {"sha256", s.sha256}});
  write_file_atomic(dir / kManifestName, json.dump(2) + "\n");
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  try {
    base::write_whole_file(path, bytes);
  } catch (const base::FileError& error) {
    throw InputError(error.what());
  }
}

}  // namespace nsa::train
