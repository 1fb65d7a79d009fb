#include "nsa/tensor_file/header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "nsa/tensor_file/strict_parse.h"

namespace nsa::tensor_file {
namespace {

using nlohmann::json;

/// The outermost object, an entry and its lists.
constexpr int kMaxDepth = 3;

[[noreturn]] void fail_key(const std::string& key, const std::string& what) {
  throw std::invalid_argument("'" + excerpt(key) + "': " + what);
}

std::map<std::string, std::string> read_metadata(const json& value) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) fail_key("__metadata__", "must be an object of texts");
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) fail_key("__metadata__." + name, "must be a text, got " + excerpt(text));
    metadata[name] = text.get<std::string>();
  }
  return metadata;
}

/// Bytes of the tensor; refuses negative axes and products that do not fit.
uint64_t read_shape(const std::string& key, const json& value, HeaderEntry& entry) {
  if (!value.is_array()) fail_key(key, "shape must be a list, got " + excerpt(value));
  uint64_t bytes = size_bytes(entry.dtype);
  bool empty = false;
  constexpr uint64_t kLimit = std::numeric_limits<int64_t>::max();
  for (const json& axis : value) {
    if (!axis.is_number_unsigned() || axis.get<uint64_t>() > kLimit)
      fail_key(key, "shape must hold whole numbers >= 0, got " + excerpt(value));
    const auto length = axis.get<uint64_t>();
    entry.shape.push_back(static_cast<int64_t>(length));
    empty = empty || length == 0;
    if (length != 0 && bytes > kLimit / length)
      fail_key(key, "shape is too large: " + excerpt(value));
    bytes *= std::max<uint64_t>(length, 1);
  }
  return empty ? 0 : bytes;
}

HeaderEntry read_entry(const std::string& key, const json& value, uint64_t data_bytes) {
  if (!value.is_object()) fail_key(key, "must be an object, got " + excerpt(value));
  for (const auto& [name, _] : value.items())
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      fail_key(key, "unknown key '" + excerpt(name) + "'");
  for (const char* name : {"dtype", "shape", "data_offsets"})
    if (!value.contains(name)) fail_key(key, std::string(name) + " is missing");

  HeaderEntry entry;
  const json& dtype = value["dtype"];
  const auto known = dtype.is_string() ? dtype_named(dtype.get<std::string>()) : std::nullopt;
  if (!known)
    fail_key(key,
             "dtype must be F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64 to I8, U64 to U8 or BOOL, "
             "got " +
                 excerpt(dtype));
  entry.dtype = *known;
  const uint64_t bytes = read_shape(key, value["shape"], entry);

  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    fail_key(key, "data_offsets must be two whole numbers >= 0, got " + excerpt(offsets));
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (!(entry.begin <= entry.end && entry.end <= data_bytes))
    fail_key(key, "data_offsets " + excerpt(offsets) + " are outside the " +
                      std::to_string(data_bytes) + " bytes of data");
  if (entry.end - entry.begin != bytes)
    fail_key(key, "data_offsets span " + std::to_string(entry.end - entry.begin) +
                      " bytes, shape " + excerpt(value["shape"]) + " of " + excerpt(dtype) +
                      " needs " + std::to_string(bytes));
  return entry;
}

/// The tensors must tile the data: no overlap, no gap, nothing behind the last one.
void check_tiling(const Header& header, uint64_t data_bytes) {
  std::vector<std::pair<HeaderEntry, std::string>> order;
  for (const auto& [key, entry] : header.entries) order.emplace_back(entry, key);
  std::ranges::sort(
      order, {}, [](const auto& item) { return std::make_pair(item.first.begin, item.first.end); });
  uint64_t next = 0;
  std::string previous;
  for (const auto& [entry, key] : order) {
    if (entry.begin < next) fail_key(key, "overlaps '" + excerpt(previous) + "'");
    if (entry.begin > next)
      fail_key(key, "begins at byte " + std::to_string(entry.begin) + ", bytes from " +
                        std::to_string(next) + " belong to no tensor");
    next = entry.end;
    previous = key;
  }
  if (next != data_bytes)
    throw std::invalid_argument(std::to_string(data_bytes - next) +
                                " bytes behind the last tensor belong to no tensor");
}

}  // namespace

Header parse_header(const std::string& text, uint64_t data_bytes) {
  if (text.empty() || text[0] != '{')
    throw std::invalid_argument("header is not JSON: it must begin with '{'");
  const json parsed = parse_strict(text, "header", kMaxDepth);
  Header header;
  for (const auto& [key, value] : parsed.items()) {
    if (key == "__metadata__")
      header.metadata = read_metadata(value);
    else
      header.entries[key] = read_entry(key, value, data_bytes);
  }
  check_tiling(header, data_bytes);
  return header;
}

std::string header_text(const Header& header) {
  json root = json::object();
  if (!header.metadata.empty()) root["__metadata__"] = header.metadata;
  for (const auto& [key, entry] : header.entries)
    root[key] = {{"dtype", name_of(entry.dtype)},
                 {"shape", entry.shape},
                 {"data_offsets", {entry.begin, entry.end}}};
  std::string text = root.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace nsa::tensor_file
