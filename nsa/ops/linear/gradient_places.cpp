#include "nsa/ops/linear/gradient_places.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace nsa {
namespace {

thread_local c10::intrusive_ptr<GradientPlaces> places_here;  // NOLINT: one a thread is the purpose

struct NotedPlaces : torch::CustomClassHolder {
  c10::intrusive_ptr<GradientPlaces> places;
  std::vector<const void*> weights;
};

std::vector<at::Tensor> take_noted(const c10::IValue& noted) {
  if (noted.isNone()) return {};
  const auto found = c10::static_intrusive_pointer_cast<NotedPlaces>(noted.toCapsule());
  return found->places->take(found->weights);
}

/// The places as one matrix where each begins where the one before ends; undefined elsewhere.
at::Tensor joined_places(const std::vector<at::Tensor>& places) {
  if (places.empty()) return {};
  const at::Tensor& first = places.front();
  int64_t end = first.storage_offset(), height = 0;
  for (const at::Tensor& place : places) {
    if (!place.is_alias_of(first) || place.storage_offset() != end) return {};
    end += place.numel();
    height += place.size(0);
  }
  return first.as_strided({height, first.size(1)}, {first.size(1), 1});
}

/// Whether products of x can be summed and left in fp32.
bool product_is_wide(const at::Tensor& x, at::ScalarType type) {
  return x.is_cuda() && x.numel() > 0 && type == at::kFloat &&
         (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf);
}

at::Tensor weight_product(const at::Tensor& d_out, const at::Tensor& x, at::ScalarType type) {
  return product_is_wide(x, type) ? at::mm(d_out.t(), x, at::kFloat)
                                  : at::mm(d_out.t(), x).to(type);
}

/// Whether weight_product() could be made in `place`.
bool weight_product_in(at::Tensor place, const at::Tensor& d_out, const at::Tensor& x) {
  const bool wide = product_is_wide(x, place.scalar_type());
  if (wide) at::mm_out(place, d_out.t(), x, at::kFloat);
  if (!wide && x.scalar_type() == place.scalar_type()) at::mm_out(place, d_out.t(), x);
  return wide || x.scalar_type() == place.scalar_type();
}

}  // namespace

void GradientPlaces::want(const at::Tensor& weight, const at::Tensor& place) {
  TORCH_CHECK(weight.dim() == 2 && place.sizes() == weight.sizes() && place.is_contiguous() &&
                  place.scalar_type() == weight.scalar_type() && place.device() == weight.device(),
              "nsa::GradientPlaces: place must be contiguous and like its weight, a matrix ",
              weight.toString(), weight.sizes(), ", got ", place.toString(), place.sizes(),
              place.is_contiguous() ? "" : ", not contiguous");
  const std::lock_guard lock(mutex_);
  places_[weight.unsafeGetTensorImpl()] = {weight, place.detach(), false};
}

bool GradientPlaces::empty() const {
  const std::lock_guard lock(mutex_);
  return places_.empty();
}

void GradientPlaces::free_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [weight, place] : places_) place.taken = false;
}

std::vector<at::Tensor> GradientPlaces::take(const std::vector<const void*>& weights) {
  const std::lock_guard lock(mutex_);
  const bool free = std::ranges::all_of(weights, [&](const void* weight) {
    const auto place = places_.find(weight);
    return place != places_.end() && !place->second.taken && !place->second.weight.grad().defined();
  });
  std::vector<at::Tensor> taken;
  if (!free) return taken;
  for (const void* weight : weights) {
    Place& place = places_.at(weight);
    place.taken = true;
    taken.push_back(place.memory.detach());  // autograd keeps a gradient that nobody else holds
  }
  return taken;
}

GradientPlaces::Scope::Scope(c10::intrusive_ptr<GradientPlaces> places)
    : outer_(std::exchange(places_here, std::move(places))) {}

GradientPlaces::Scope::~Scope() { places_here = std::move(outer_); }

c10::IValue noted_places(at::TensorList weights) {
  if (!places_here || places_here->empty()) return {};
  auto noted = c10::make_intrusive<NotedPlaces>();
  noted->places = places_here;
  for (const at::Tensor& weight : weights) noted->weights.push_back(weight.unsafeGetTensorImpl());
  return c10::IValue::make_capsule(std::move(noted));
}

std::vector<at::Tensor> weight_gradients(const at::Tensor& d_out, const at::Tensor& x,
                                         at::ScalarType type, const std::vector<int64_t>& heights,
                                         const c10::IValue& noted) {
  std::vector<at::Tensor> places = take_noted(noted);
  const at::Tensor together = joined_places(places);
  if (together.defined() && weight_product_in(together, d_out, x)) return places;
  std::vector<at::Tensor> made = weight_product(d_out, x, type).split_with_sizes(heights, 0);
  if (places.empty()) return made;
  at::_foreach_copy_(places, made);  // one launch for all
  return places;
}

}  // namespace nsa
