#include "nsa/train/shard/transient_storage.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <utility>

namespace nsa::train {
namespace {

c10::Allocator* allocator_of(c10::Device device) {
  return device.is_cpu() ? c10::GetCPUAllocator() : c10::GetAllocator(device.type());
}

}  // namespace

TransientStorage::TransientStorage(at::Tensor whole) : whole_(std::move(whole)) {}

void TransientStorage::take() {
  if (std::exchange(there_, true)) return;
  const size_t bytes = whole_.nbytes();
  whole_.storage().set_data_ptr_noswap(allocator_of(whole_.device())->allocate(bytes));
  whole_.storage().set_nbytes(bytes);
}

void TransientStorage::give_back() {
  if (!std::exchange(there_, false)) return;
  whole_.storage().set_data_ptr_noswap(c10::DataPtr(nullptr, whole_.device()));
  whole_.storage().set_nbytes(0);
}

}  // namespace nsa::train
