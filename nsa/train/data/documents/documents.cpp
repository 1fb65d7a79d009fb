#include "nsa/train/data/documents/documents.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"
#include "nsa/train/data/documents/byte_source.h"
#include "nsa/train/data/documents/json_documents.h"
#include "nsa/train/data/documents/parquet_documents.h"
#include "nsa/train/data/documents/text_reader.h"

namespace nsa::train {
namespace {

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

struct Format {
  std::string text;     ///< txt, jsonl, json, parquet
  std::string packing;  ///< .gz, .zst or nothing
};

Format format_of(const std::filesystem::path& file, const std::string& asked) {
  Format format;
  std::filesystem::path name = file.filename();
  std::string extension = lower_case(name.extension().string());
  if (extension == ".gz" || extension == ".zst") {
    format.packing = extension;
    extension = lower_case(name.stem().extension().string());
  }
  format.text = !asked.empty() ? asked : extension.empty() ? "" : extension.substr(1);
  if (format.text == "ndjson") format.text = "jsonl";
  return format;
}

bool is_text_format(const std::string& name) {
  return name == "txt" || name == "jsonl" || name == "json";
}

DocumentCounts read_text(TextReader& text, const Format& format, const std::string& name,
                         const std::string& field, const TakeDocument& take) {
  if (format.text == "jsonl") return read_json_lines(text, name, field, take);
  if (format.text == "json") return read_json(text, name, field, take);
  take(text.rest());
  return {.taken = 1};
}

DocumentCounts read_text_file(const std::filesystem::path& file, const Format& format,
                              const std::string& field, const TakeDocument& take,
                              SourceFile* source) {
  InputFile input(file);
  const std::string name = file.string();
  std::unique_ptr<ByteSource> unpacked;
  if (format.packing == ".gz") unpacked = unpack_gzip(input, name);
  if (format.packing == ".zst") unpacked = unpack_zstd(input, name);
  TextReader text(unpacked ? *unpacked : input, name);
  const DocumentCounts counts = read_text(text, format, name, field, take);
  if (source) *source = input.description();
  return counts;
}

std::string hash_of(const std::filesystem::path& file) {
  try {
    return base::sha256_file(file);
  } catch (const std::runtime_error& error) {
    throw InputError(error.what());
  }
}

/// Rows are counted in an error, as a column has no lines.
DocumentCounts read_parquet_file(const std::filesystem::path& file, const std::string& field,
                                 const TakeDocument& take, SourceFile* source) {
  int64_t value = 0;
  const auto take_text = [&](std::string_view bytes) {
    ++value;
    if (const auto bad = first_not_utf8(bytes))
      throw InputError(file.string() + ", column " + field + ": text " + std::to_string(value) +
                       " (nulls not counted) is not UTF-8 at its byte " + std::to_string(*bad) +
                       "; write the file again with text as UTF-8");
    take(bytes);
  };
  const DocumentCounts counts = for_each_parquet_document(file, field, take_text);
  if (source)
    *source = {file.filename().string(), static_cast<int64_t>(std::filesystem::file_size(file)),
               hash_of(file)};
  return counts;
}

}  // namespace

void require_known_format(const std::filesystem::path& file, const std::string& format) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status))
    throw InputError("cannot read " + file.string() + ": " + error.message());
  if (std::filesystem::is_directory(status))
    throw InputError("cannot read " + file.string() + ": it is a folder; name its files");
  const Format found = format_of(file, format);
  if (found.text == "parquet" && !found.packing.empty())
    throw InputError(file.string() + " is a packed Parquet file, which is not read; unpack it");
  if (found.text == "parquet" || is_text_format(found.text)) return;
  throw InputError(file.string() + ": its name does not tell what it holds; files are read whose " +
                   "name ends in " + kFormatsRead + "; give text under another name with --format");
}

DocumentCounts for_each_document(const std::filesystem::path& file, const std::string& field,
                                 const TakeDocument& take, const std::string& format,
                                 SourceFile* source) {
  require_known_format(file, format);
  int64_t nul_bytes = 0;
  const auto counted = [&](std::string_view bytes) {
    nul_bytes += std::count(bytes.begin(), bytes.end(), '\0');
    take(bytes);
  };
  const Format found = format_of(file, format);
  if (found.text != "parquet" && std::filesystem::is_regular_file(file) && looks_like_parquet(file))
    throw InputError(file.string() + " is a Parquet file; let its name end in .parquet");
  DocumentCounts counts = found.text == "parquet"
                              ? read_parquet_file(file, field, counted, source)
                              : read_text_file(file, found, field, counted, source);
  counts.nul_bytes = nul_bytes;
  return counts;
}

}  // namespace nsa::train
