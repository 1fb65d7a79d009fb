#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nsa::tensor_file {

/// Element types of a tensor file. F8: with finite range (E4M3, no infinity) or as fp16's upper
/// byte (E5M2).
enum class Dtype {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kU64,
  kI32,
  kU32,
  kI16,
  kU16,
  kI8,
  kU8,
  kBool
};

/// Bytes of one element.
size_t size_bytes(Dtype dtype);

bool is_floating(Dtype dtype);

/// "F64", "BF16", "BOOL", ... as in the file; `dtype_named` gives nothing for another text.
std::string_view name_of(Dtype dtype);
std::optional<Dtype> dtype_named(std::string_view name);

/// Value of one stored element as double. Exact except for integers beyond 2^53.
double decode_element(Dtype dtype, const std::byte* element);

/// Stores `value`, rounded once to nearest even; beyond a float type's range becomes infinity,
/// in F8_E4M3 NaN.
/// Throws std::domain_error for an integer type that cannot hold the value exactly.
void encode_element(Dtype dtype, double value, std::byte* element);

}  // namespace nsa::tensor_file
