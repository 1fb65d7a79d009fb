#include "nsa/train/data/documents.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "nsa/program/input_error.h"
#include "nsa/train/data/parquet_documents.h"

namespace nsa::train {
namespace {

std::string document_of_line(const std::string& line, const std::string& field,
                             const std::string& where) {
  nlohmann::json record;
  try {
    record = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& e) {
    throw InputError(where + ": not valid JSON: " + e.what());
  }
  if (!record.is_object())
    throw InputError(where + ": must be an object, got " + record.type_name());
  const auto text = record.find(field);
  if (text == record.end()) throw InputError(where + ": field \"" + field + "\" is missing");
  if (!text->is_string())
    throw InputError(where + ": field \"" + field + "\" must be a string, got " +
                     text->type_name());
  return text->get<std::string>();
}

DocumentCounts read_jsonl(std::ifstream& in, const std::string& name, const std::string& field,
                          const TakeDocument& take) {
  std::string line;
  DocumentCounts counts;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    take(document_of_line(line, field, name + ":" + std::to_string(number)));
    ++counts.taken;
  }
  return counts;
}

}  // namespace

DocumentCounts for_each_document(const std::filesystem::path& file, const std::string& field,
                                 const TakeDocument& take) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) throw InputError("cannot read " + file.string());
  if (file.extension() == ".parquet") return for_each_parquet_document(file, field, take);
  if (looks_like_parquet(file))
    throw InputError(file.string() + " is a Parquet file; let its name end in .parquet");
  DocumentCounts counts{.taken = 1};
  if (file.extension() == ".jsonl") {
    counts = read_jsonl(in, file.string(), field, take);
  } else {
    take(std::string(std::istreambuf_iterator<char>(in), {}));
  }
  if (in.bad()) throw InputError("reading " + file.string() + " failed");
  return counts;
}

}  // namespace nsa::train
