// Tensor maps (TMA): what the driver encodes, and the copy of a box of a tensor.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace nsa::kernels::emulator {

constexpr int kMostAxes = 5;

/// What the emulated encoder writes into a CUtensorMap.
struct TensorMap {
  uint64_t mark;
  const char* data;
  uint64_t sizes[kMostAxes], strides[kMostAxes - 1];  // in elements, in bytes
  uint16_t box[kMostAxes];
  uint16_t axes, element_bytes;
  bool swizzled;  // by 128 bytes

  uint32_t bytes_of_box() const;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

const TensorMap& map_of(const void* encoded);
/// The box at `place` to shared memory, zeros for what lies outside of the tensor.
void copy_box(const TensorMap& map, const int (&place)[kMostAxes], uint32_t to);

/// cuTensorMapEncodeTiled.
CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t axes, void* data,
                      const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                      CUtensorMapFloatOOBfill fill);

}  // namespace nsa::kernels::emulator
