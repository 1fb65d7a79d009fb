#include "nsa/train/shard/sharded_parameters.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <unordered_map>

namespace nsa::train {
namespace {

std::string name_of(size_t section, size_t num_sections) {
  if (section == 0) return "embedding";
  if (section + 1 == num_sections) return "head";
  return "layer " + std::to_string(section - 1);
}

}  // namespace

ShardedParameters::ShardedParameters(Decoder model, at::Device device, RankGroup& ranks,
                                     int64_t group_size, const ReducerOptions& options,
                                     CollectiveLog& log)
    : model_(std::move(model)), collectives_(ranks, log, group_size, options.bf16) {
  make_units(device);
  arrived_.resize(units_.size());
  for (size_t unit = 0; unit < units_.size(); ++unit) watch_gradients(unit);
  model_->sections = this;
}

ShardedParameters::~ShardedParameters() {
  model_->sections = nullptr;
  for (const auto& [node, hook] : watched_) node->del_post_hook(hook);
}

void ShardedParameters::make_units(at::Device device) {
  std::vector<std::vector<at::Tensor>> sections = model_->section_parameters();
  if (model_->config().tied_head) {
    sections.front().insert(sections.front().end(), sections.back().begin(), sections.back().end());
    sections.back().clear();
  }
  std::unordered_map<const void*, Place> places;
  for (size_t s = 0; s < sections.size(); ++s) {
    unit_of_section_.push_back(sections[s].empty() ? 0 : units_.size());
    if (sections[s].empty()) continue;
    for (size_t i = 0; i < sections[s].size(); ++i)
      places.emplace(sections[s][i].unsafeGetTensorImpl(), Place{units_.size(), i});
    units_.push_back(std::make_unique<ShardUnit>(name_of(s, sections.size()),
                                                 std::move(sections[s]), device, collectives_));
  }
  for (const at::Tensor& parameter : model_->parameters()) {
    const auto place = places.find(parameter.unsafeGetTensorImpl());
    TORCH_INTERNAL_ASSERT(place != places.end(), "a parameter of shape ", parameter.sizes(),
                          " is in no section");
    places_.push_back(place->second);
    pieces_.push_back(units_[places_.back().unit]->piece(places_.back().index));
  }
}

void ShardedParameters::watch_gradients(size_t unit) {
  for (const at::Tensor& parameter : units_[unit]->parameters()) {
    auto node = torch::autograd::impl::grad_accumulator(parameter);
    const uintptr_t hook =
        node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, unit](const auto& outputs, const auto&) {
              gradient_arrived(unit);
              return outputs;
            }));
    watched_.emplace_back(std::move(node), hook);
  }
}

void ShardedParameters::before_forward(size_t section) {
  if (whole_) return;
  unit_of(section).gather();
  if (section + 1 < unit_of_section_.size()) unit_of(section + 1).begin_gather();
}

/// The last section's backward pass follows at once.
void ShardedParameters::after_forward(size_t section) {
  const bool needed = section + 1 == unit_of_section_.size() && at::GradMode::is_enabled();
  if (!whole_ && !needed) unit_of(section).free();
}

void ShardedParameters::before_backward(size_t section) {
  if (whole_) return;
  unit_of(section).gather();
  if (section > 1) unit_of(section - 1).begin_gather();
}

void ShardedParameters::after_backward(size_t section) {
  if (!whole_) unit_of(section).free();
}

void ShardedParameters::gradient_arrived(size_t unit) {
  if (whole_ || ++arrived_[unit] < units_[unit]->parameters().size()) return;
  if (averaging_) averaging_->finish_average();
  averaging_ = units_[unit].get();
  averaging_->begin_average();
}

void ShardedParameters::end_micro_batch() {
  if (averaging_) std::exchange(averaging_, nullptr)->finish_average();
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const size_t wanted = units_[unit]->parameters().size();
    TORCH_CHECK(arrived_[unit] == wanted, "nsa::ShardedParameters: all ", wanted, " parameters of ",
                units_[unit]->name(), " must have a gradient, got ", arrived_[unit]);
    arrived_[unit] = 0;
  }
}

void ShardedParameters::give_gradients() {
  std::vector<std::vector<at::Tensor>> of_units;
  for (const auto& unit : units_) of_units.push_back(unit->take_gradients());
  for (size_t i = 0; i < pieces_.size(); ++i)
    pieces_[i].mutable_grad() = of_units[places_[i].unit][places_[i].index];
}

std::vector<bool> ShardedParameters::matrices() const {
  std::vector<bool> result;
  for (const at::Tensor& parameter : model_->parameters()) result.push_back(parameter.dim() >= 2);
  return result;
}

ShardLayout::Piece ShardedParameters::piece_place(size_t i) const {
  return units_[places_[i].unit]->layout().piece(places_[i].index, collectives_.rank());
}

ShardedParameters::Whole::Whole(ShardedParameters& sharded) : sharded_(sharded) {
  for (const auto& unit : sharded_.units_) unit->gather();
  sharded_.whole_ = true;
}

ShardedParameters::Whole::~Whole() {
  sharded_.whole_ = false;
  for (const auto& unit : sharded_.units_) unit->free();
}

}  // namespace nsa::train
