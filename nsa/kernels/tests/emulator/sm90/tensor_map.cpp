#include "nsa/kernels/tests/emulator/sm90/tensor_map.h"

#include <cstring>

#include "nsa/kernels/tests/emulator/async_memory.h"
#include "nsa/kernels/tests/emulator/emulator.h"

namespace nsa::kernels::emulator {
namespace {

constexpr uint64_t kMapMark = 0x70616d20726f736eull;
constexpr uint64_t kPiece = 16;  // bytes that swizzling keeps together

bool multiple(uint64_t x, uint64_t of) { return x % of == 0; }

/// What the driver refuses (CUDA driver API, cuTensorMapEncodeTiled) of maps without interleaving.
bool allowed(const TensorMap& map) {
  if (!multiple(reinterpret_cast<uintptr_t>(map.data), 16) || map.axes < 1 || map.axes > kMostAxes)
    return false;
  for (int i = 0; i < map.axes; ++i)
    if (map.sizes[i] == 0 || map.sizes[i] > 1ull << 32 || map.box[i] == 0 || map.box[i] > 256)
      return false;
  for (int i = 0; i + 1 < map.axes; ++i)
    if (!multiple(map.strides[i], 16) || map.strides[i] >= 1ull << 40) return false;
  const uint64_t row = uint64_t{map.box[0]} * map.element_bytes;
  return multiple(row, 16) && (!map.swizzled || row <= 128);
}

}  // namespace

uint32_t TensorMap::bytes_of_box() const {
  uint32_t bytes = element_bytes;
  for (int i = 0; i < axes; ++i) bytes *= box[i];
  return bytes;
}

const TensorMap& map_of(const void* encoded) {
  const TensorMap& map = *static_cast<const TensorMap*>(encoded);
  if (reinterpret_cast<uintptr_t>(encoded) % 64 != 0 || map.mark != kMapMark)
    fail("%p is no tensor map", encoded);
  return map;
}

void copy_box(const TensorMap& map, const int (&place)[kMostAxes], uint32_t to) {
  if (to % 128 != 0) fail("a box of a tensor to shared address %u", to);
  const uint64_t row_bytes = uint64_t{map.box[0]} * map.element_bytes;
  const int64_t rows = map.bytes_of_box() / int64_t(row_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    const char* from = map.data;
    bool inside = true;
    int64_t rest = row;
    for (int i = 1; i < map.axes; ++i) {
      const int64_t at = place[i] + rest % map.box[i];
      rest /= map.box[i];
      inside &= at >= 0 && at < int64_t(map.sizes[i]);
      from += at * int64_t(map.strides[i - 1]);
    }
    for (uint64_t byte = 0; byte < row_bytes; byte += kPiece) {
      char piece[kPiece] = {};
      for (uint64_t b = 0; b < kPiece && inside; b += map.element_bytes) {
        const int64_t column = place[0] + int64_t((byte + b) / map.element_bytes);
        if (column >= 0 && column < int64_t(map.sizes[0]))
          std::memcpy(piece + b, from + column * map.element_bytes, map.element_bytes);
      }
      const uint32_t address = to + static_cast<uint32_t>(uint64_t(row) * row_bytes + byte);
      write_async(map.swizzled ? swizzle_128(address) : address, piece, kPiece);
    }
  }
}

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t axes, void* data,
                      const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                      CUtensorMapFloatOOBfill fill) {
  const bool known =
      (type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16) &&
      interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
      (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  if (!known) fail("this kind of tensor map is not emulated");
  TensorMap own{};
  own.mark = kMapMark, own.data = static_cast<const char*>(data);
  own.axes = static_cast<uint16_t>(axes), own.element_bytes = 2;
  own.swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  for (cuuint32_t i = 0; i < axes && i < kMostAxes; ++i) {
    if (steps[i] != 1) fail("tensor maps with steps are not emulated");
    own.sizes[i] = sizes[i], own.box[i] = static_cast<uint16_t>(box[i] > 256 ? 0 : box[i]);
    if (i + 1 < axes && i + 1 < kMostAxes) own.strides[i] = strides[i];
  }
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || !allowed(own)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &own, sizeof own);
  return CUDA_SUCCESS;
}

}  // namespace nsa::kernels::emulator
