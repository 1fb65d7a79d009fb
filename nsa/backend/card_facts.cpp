#include "nsa/backend/card_facts.h"

#ifdef NSA_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>

#include <memory>
#include <mutex>
#include <vector>
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

/// PTX of a compiler needs a driver that is as new.
bool compiles_ptx() {
  int driver = 0;
  return cudaDriverGetVersion(&driver) == cudaSuccess && driver >= CUDART_VERSION;
}

CardFacts facts_of_card(c10::DeviceIndex index) {
  const cudaDeviceProp& card = *at::cuda::getDeviceProperties(index);
  return {true,
          true,
          card.major,
          card.minor,
          card.sharedMemPerBlockOptin,
          built_machine_code(),
          compiles_ptx()};
}

}  // namespace

const CardFacts& card_facts(c10::Device device) {
  static const CardFacts no_card{true, false, 0, 0, 0, built_machine_code(), false};
  if (!device.is_cuda()) return no_card;
  static std::mutex mutex;
  static std::vector<std::unique_ptr<const CardFacts>> cards;
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::cuda::current_device();
  const auto place = static_cast<size_t>(index);
  const std::lock_guard lock(mutex);
  if (cards.size() <= place) cards.resize(place + 1);
  if (cards[place] == nullptr)
    cards[place] = std::make_unique<const CardFacts>(facts_of_card(index));
  return *cards[place];
}
#else
const CardFacts& card_facts(c10::Device) {
  static const CardFacts no_kernels;
  return no_kernels;
}
#endif

}  // namespace nsa
