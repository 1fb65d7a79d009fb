#include "nsa/tensor_file/tensor_file.h"

#include <cstring>
#include <limits>

namespace nsa::tensor_file {
namespace {

void check_count(const std::vector<int64_t>& shape, size_t have) {
  int64_t want = 1;
  for (const int64_t length : shape) {
    if (length < 0)
      throw std::invalid_argument("tensor axis must be >= 0, got " + std::to_string(length));
    want *= length;
  }
  if (static_cast<size_t>(want) != have)
    throw std::invalid_argument("tensor values must be " + std::to_string(want) +
                                " for the shape, got " + std::to_string(have));
}

}  // namespace

int64_t FileTensor::numel() const {
  int64_t product = 1;
  for (const int64_t length : shape) product *= length;
  return product;
}

std::vector<double> to_doubles(const FileTensor& tensor) {
  const size_t width = size_bytes(tensor.dtype);
  std::vector<double> values(tensor.bytes.size() / width);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = decode_element(tensor.dtype, tensor.bytes.data() + i * width);
  return values;
}

FileTensor from_doubles(const std::vector<int64_t>& shape, const std::vector<double>& values,
                        Dtype dtype) {
  check_count(shape, values.size());
  const size_t width = size_bytes(dtype);
  FileTensor tensor{dtype, shape, std::vector<std::byte>(values.size() * width)};
  for (size_t i = 0; i < values.size(); ++i)
    encode_element(dtype, values[i], tensor.bytes.data() + i * width);
  return tensor;
}

std::vector<int64_t> to_integers(const FileTensor& tensor) {
  std::vector<int64_t> values(static_cast<size_t>(tensor.numel()));
  if (tensor.dtype == Dtype::kI64) {
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  if (tensor.dtype != Dtype::kI32)
    throw std::invalid_argument("tensor dtype must be I32 or I64, got " +
                                std::string(name_of(tensor.dtype)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int64_t>(decode_element(Dtype::kI32, tensor.bytes.data() + 4 * i));
  return values;
}

FileTensor from_integers(const std::vector<int64_t>& shape, const std::vector<int64_t>& values,
                         Dtype dtype) {
  check_count(shape, values.size());
  if (dtype != Dtype::kI64) {
    for (const int64_t value : values)
      if (dtype != Dtype::kI32 || value != static_cast<int32_t>(value))
        throw std::invalid_argument("value " + std::to_string(value) + " does not fit " +
                                    std::string(name_of(dtype)));
    return from_doubles(shape, {values.begin(), values.end()}, dtype);
  }
  FileTensor tensor{dtype, shape, std::vector<std::byte>(values.size() * 8)};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

}  // namespace nsa::tensor_file
