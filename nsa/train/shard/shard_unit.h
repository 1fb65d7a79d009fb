#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "nsa/train/shard/shard_collectives.h"
#include "nsa/train/shard/shard_layout.h"
#include "nsa/train/shard/transient_storage.h"

namespace nsa::train {

/// Parameters that are gathered, freed and reduced together: those of a layer. Between uses a rank
/// keeps its part of them alone. Every call that begins a collective is collective.
class ShardUnit {
 public:
  /// Makes `parameters` views of a flat buffer with the values of rank 0, and frees it.
  /// They may be on the CPU; on `device` they are afterwards. `collectives` outlives the unit.
  ShardUnit(std::string name, std::vector<at::Tensor> parameters, at::Device device,
            const ShardCollectives& collectives);

  const std::string& name() const { return name_; }
  const ShardLayout& layout() const { return layout_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  /// Begins to gather the parameters, unless they are there or on their way.
  void begin_gather();
  /// The parameters are there for what is enqueued from now on.
  void gather();
  /// Frees the parameters.
  void free();

  /// What this rank keeps of parameter `i`: [size] of its values, maybe none; writing it changes
  /// them, once they are gathered again.
  at::Tensor piece(size_t i) const { return piece_of(shard_, i); }

  /// Every parameter has a gradient: takes them away and begins to average them.
  void begin_average();
  /// Adds the mean to this rank's part of the gradient.
  void finish_average();
  /// Hands this rank's parts of the gradients out, one for each parameter.
  std::vector<at::Tensor> take_gradients();

 private:
  at::Tensor piece_of(const at::Tensor& shard, size_t i) const;
  std::vector<at::Tensor> views_of(const at::Tensor& whole) const;

  std::string name_;
  std::vector<at::Tensor> parameters_;
  const ShardCollectives& collectives_;
  ShardLayout layout_;
  TransientStorage flat_;
  at::Tensor shard_;                       ///< this rank's part of flat_
  ShardCollectives::WorkPtr gathering_;    ///< into flat_; null: none under way
  ShardCollectives::WorkPtr averaging_;    ///< of sent_ into arriving_
  at::Tensor sent_, arriving_, gradient_;  ///< gradient_: sum of the means so far
};

}  // namespace nsa::train
