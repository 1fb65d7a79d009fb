#include "suites/phases/correctness/range_cases.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "nsa/reference/stages/ranges.h"
#include "suites/conformance/convert.h"
#include "suites/phases/program_folder.h"

namespace suites {
namespace {

using at::Tensor;
namespace fs = std::filesystem;

/// The file itself, or the same path below a folder above the executable.
fs::path find_file(const std::string& path) {
  if (fs::exists(path) || fs::path(path).is_absolute()) return path;
  for (fs::path folder = program_folder();; folder = folder.parent_path()) {
    if (fs::exists(folder / path)) return folder / path;
    if (folder == folder.root_path()) return path;
  }
}

Tensor read_tensor(const nlohmann::json& values, const std::vector<int64_t>& sizes) {
  const auto flat = values.get<std::vector<int64_t>>();
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  if (static_cast<int64_t>(flat.size()) != count)
    throw std::runtime_error("has " + std::to_string(flat.size()) +
                             " values where its shape needs " + std::to_string(count));
  return at::tensor(flat, at::kLong).view(sizes);
}

RangeCase read_case(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  const auto shape = json.at("shape").get<std::vector<int64_t>>();
  if (shape.size() != 4) throw std::runtime_error("shape must be [B, S, Hkv, K]");
  std::vector<int64_t> ranges_shape = shape;
  ranges_shape.push_back(2);
  RangeCase one;
  one.id = json.at("id").get<std::string>();
  one.sel_block_size = json.at("sel_block_size").get<int64_t>();
  one.block_idx = read_tensor(json.at("block_idx"), shape).to(at::kInt);
  one.t = read_tensor(json.at("t"), {1, shape[1]});
  one.expected = read_tensor(json.at("ranges"), ranges_shape).to(at::kInt);
  return one;
}

}  // namespace

std::vector<RangeCase> read_range_cases(const std::string& path) {
  const fs::path file = find_file(path);
  std::ifstream in(file);
  if (!in)
    throw std::runtime_error("case file '" + path + "' cannot be read, here or above " +
                             program_folder().string());
  std::vector<RangeCase> cases;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      cases.push_back(read_case(line));
    } catch (const std::exception& error) {
      throw std::runtime_error("case file '" + file.string() + "' line " + std::to_string(number) +
                               ": " + error.what());
    }
  }
  if (cases.empty()) throw std::runtime_error("case file '" + file.string() + "' holds no case");
  return cases;
}

Tensor oracle_ranges(const RangeCase& one) {
  const Tensor ids = one.block_idx.contiguous(), t = one.t.flatten();
  const int64_t tokens = ids.size(1), heads = ids.size(2), width = ids.size(3);
  Tensor out = at::zeros({ids.size(0), tokens, heads, width, 2}, at::kInt);
  const int32_t* from = ids.const_data_ptr<int32_t>();
  int32_t* to = out.mutable_data_ptr<int32_t>();
  for (int64_t row = 0; row < ids.size(0) * tokens * heads; ++row) {
    const int64_t position = t[row / heads % tokens].item<int64_t>();
    const auto pairs = nsa::reference::ranges_row({from + row * width, static_cast<size_t>(width)},
                                                  one.sel_block_size, position);
    std::copy(pairs.begin(), pairs.end(), to + row * width * 2);
  }
  return out;
}

const std::vector<nsa::RangesVersion>& range_versions() {
  static const std::vector<nsa::RangesVersion> versions = {
      nsa::RangesVersion::kV1, nsa::RangesVersion::kV1Bulk, nsa::RangesVersion::kV2};
  return versions;
}

}  // namespace suites
