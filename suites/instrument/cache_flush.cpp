#include "suites/instrument/cache_flush.h"

#include <ATen/ATen.h>

namespace suites {

constexpr int64_t kFlushBytes = int64_t{512} << 20;
constexpr int64_t kByteValues = 256;

CacheFlush::CacheFlush(at::Device device) {
  if (device.is_cuda())
    buffer_ = at::empty({kFlushBytes}, at::TensorOptions().dtype(at::kByte).device(device));
}

void CacheFlush::operator()() {
  TORCH_CHECK(available(), "suites::CacheFlush: device must be cuda, got cpu");
  buffer_.fill_(times_++ % kByteValues);
}

}  // namespace suites
