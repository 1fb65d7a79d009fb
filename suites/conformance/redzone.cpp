#include "suites/conformance/redzone.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace suites {
namespace {

constexpr int64_t kBand = 256;  // bytes; a multiple of the alignment LibTorch gives
constexpr size_t kAlignment = 64;
constexpr unsigned char kPoison = 0xFF;
constexpr uint8_t kHighestPriority = 255;

std::atomic<int64_t> g_allocations{0}, g_violations{0};

bool poisoned(const unsigned char* begin, size_t count) {
  return std::all_of(begin, begin + count, [](unsigned char byte) { return byte == kPoison; });
}

/// A block: size, band, values, band. The context of its DataPtr is the block's start.
class RedzoneAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t whole = (kAlignment + kBand + bytes + kBand + kAlignment - 1) & ~(kAlignment - 1);
    auto* block = static_cast<unsigned char*>(std::aligned_alloc(kAlignment, whole));
    if (block == nullptr) throw std::bad_alloc();
    std::memset(block, kPoison, whole);
    std::memcpy(block, &bytes, sizeof(bytes));
    ++g_allocations;
    return {block + kAlignment + kBand, block, &release, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static void release(void* context) {
    auto* block = static_cast<unsigned char*>(context);
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof(bytes));
    const unsigned char* band = block + kAlignment;
    if (!poisoned(band, kBand) || !poisoned(band + kBand + bytes, kBand)) ++g_violations;
    std::free(block);
  }
};

RedzoneAllocator& redzone_allocator() {
  static RedzoneAllocator allocator;
  return allocator;
}

}  // namespace

GuardedTensor::GuardedTensor(const at::Tensor& x, bool gaps) {
  std::vector<int64_t> shape = x.sizes().vec(), strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;)
    strides[dim - 1] = strides[dim] * shape[dim] + (gaps && dim == 2 ? 5 : 0);
  const int64_t items = x.numel() == 0 ? 0 : strides[0] * shape[0];
  const auto size = static_cast<int64_t>(x.element_size());
  storage_ = at::full({kBand + items * size + kBand}, kPoison,
                      at::TensorOptions().dtype(at::kByte).device(x.device()));
  tensor_ = storage_.narrow(0, kBand, items * size)
                .view(x.scalar_type())
                .as_strided(shape, strides, kBand / size);
  tensor_.copy_(x);
  before_ = storage_.clone();
}

int64_t GuardedTensor::changed_bytes() const { return (storage_ != before_).sum().item<int64_t>(); }

RedzoneScope::RedzoneScope() : before_(c10::GetCPUAllocator()) {
  TORCH_CHECK(before_ != &redzone_allocator(), "suites::RedzoneScope: one is active already");
  g_allocations = 0;
  g_violations = 0;
  c10::SetCPUAllocator(&redzone_allocator(), kHighestPriority);
}

RedzoneScope::~RedzoneScope() { c10::SetCPUAllocator(before_, kHighestPriority); }

int64_t RedzoneScope::allocations() const { return g_allocations; }
int64_t RedzoneScope::violations() const { return g_violations; }

}  // namespace suites
