#include "suites/instrument/cupti/activity_buffers.h"

#include <cstdlib>
#include <cstring>
#include <utility>

namespace suites {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

ActivityBuffers::~ActivityBuffers() {
  for (uint8_t* data : all_) std::free(data);
}

uint8_t* ActivityBuffers::make() {
  if (all_.size() >= most_) return nullptr;
  auto* data = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBytes));
  if (data == nullptr) return nullptr;
  std::memset(data, 0, kBytes);  // also: the pages exist before anything is measured
  all_.push_back(data);
  return data;
}

void ActivityBuffers::prepare(size_t count) {
  const std::lock_guard lock(mutex_);
  while (free_.size() < count) {
    uint8_t* data = make();
    if (data == nullptr) return;
    free_.push_back(data);
  }
}

uint8_t* ActivityBuffers::request() {
  const std::lock_guard lock(mutex_);
  uint8_t* data = nullptr;
  if (free_.empty()) {
    data = make();
  } else {
    data = free_.back();
    free_.pop_back();
  }
  if (data == nullptr) ++refused_;
  return data;
}

void ActivityBuffers::complete(uint8_t* data, size_t valid_bytes) {
  const std::lock_guard lock(mutex_);
  if (valid_bytes == 0)
    free_.push_back(data);
  else
    filled_.push_back({data, valid_bytes});
}

std::vector<ActivityBuffers::Filled> ActivityBuffers::take_filled() {
  const std::lock_guard lock(mutex_);
  return std::exchange(filled_, {});
}

void ActivityBuffers::recycle(const Filled& used) {
  std::memset(used.data, 0, kBytes);
  const std::lock_guard lock(mutex_);
  free_.push_back(used.data);
}

int64_t ActivityBuffers::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

}  // namespace suites
