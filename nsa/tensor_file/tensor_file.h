#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "nsa/tensor_file/dtype.h"

namespace nsa::tensor_file {

/// What is wrong with a tensor file: "<path>: <key>: <what>", the key where there is one.
class TensorFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One tensor as it lies in the file: row-major, little-endian.
struct FileTensor {
  Dtype dtype = Dtype::kF64;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t numel() const;
};

/// A safetensors file: named tensors and a text-to-text metadata map.
struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, FileTensor> tensors;

  bool has(const std::string& name) const { return tensors.contains(name); }
};

/// Reads a safetensors file. Throws TensorFileError for everything the format does not allow:
/// truncated or oversized header, malformed JSON, duplicate or unknown keys, byte counts that do
/// not fit the shape, offsets out of bounds, overlaps, and bytes that belong to no tensor.
TensorFile read_tensor_file(const std::filesystem::path& path);

/// Writes a safetensors file (header padded to 8 bytes, wide element types first, so that every
/// tensor is aligned). Throws TensorFileError naming tensor or path.
void write_tensor_file(const std::filesystem::path& path, const TensorFile& file);

/// All elements as double, from any dtype.
std::vector<double> to_doubles(const FileTensor& tensor);

/// A tensor of `dtype` from doubles, each rounded once. Throws std::invalid_argument when the count
/// does not fit the shape.
FileTensor from_doubles(const std::vector<int64_t>& shape, const std::vector<double>& values,
                        Dtype dtype);

/// I32 and I64 elements. Throws std::invalid_argument for any other dtype.
std::vector<int64_t> to_integers(const FileTensor& tensor);
FileTensor from_integers(const std::vector<int64_t>& shape, const std::vector<int64_t>& values,
                         Dtype dtype);

}  // namespace nsa::tensor_file
