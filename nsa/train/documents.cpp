#include "nsa/train/documents.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "nsa/model/input_error.h"

namespace nsa::train {
namespace {

std::string document_of_line(const std::string& line, const std::string& where) {
  nlohmann::json record;
  try {
    record = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& e) {
    throw InputError(where + ": not valid JSON: " + e.what());
  }
  if (!record.is_object())
    throw InputError(where + ": must be an object, got " + record.type_name());
  const auto text = record.find("text");
  if (text == record.end()) throw InputError(where + ": field \"text\" is missing");
  if (!text->is_string())
    throw InputError(where + ": field \"text\" must be a string, got " + text->type_name());
  return text->get<std::string>();
}

void read_jsonl(std::ifstream& in, const std::string& name,
                const std::function<void(std::string_view)>& take) {
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    take(document_of_line(line, name + ":" + std::to_string(number)));
  }
}

}  // namespace

void for_each_document(const std::filesystem::path& file,
                       const std::function<void(std::string_view)>& take) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) throw InputError("cannot read " + file.string());
  if (file.extension() == ".jsonl") {
    read_jsonl(in, file.string(), take);
  } else {
    take(std::string(std::istreambuf_iterator<char>(in), {}));
  }
  if (in.bad()) throw InputError("reading " + file.string() + " failed");
}

}  // namespace nsa::train
