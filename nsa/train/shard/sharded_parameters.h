#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>
#include <vector>

#include "nsa/model/decoder.h"
#include "nsa/model/sections.h"
#include "nsa/train/gradients/reducer_options.h"
#include "nsa/train/shard/shard_unit.h"

namespace nsa::train {

/// A model whose parameters, gradients and moments are divided among the ranks (ZeRO-3,
/// arXiv:1910.02054; FSDP, arXiv:2304.11277). A unit is a layer, the embedding, or the final norm
/// with the head (one with the embedding where the head is tied). Its parameters are gathered for
/// its forward and its backward pass and freed behind each; meanwhile those of the next unit are on
/// their way. Its gradients are averaged, each rank keeping its part, while the backward pass goes
/// on with the unit before it; one such sum is under way at a time.
class ShardedParameters : public SectionObserver {
 public:
  /// Takes the parameters of `model`, with the values of rank 0, to `device`, and observes its
  /// sections from now on; they may be on the CPU, unit by unit they leave it. `ranks` and `log`
  /// outlive it. `group_size`: see ShardCollectives.
  ShardedParameters(Decoder model, at::Device device, RankGroup& ranks, int64_t group_size,
                    const ReducerOptions& options, CollectiveLog& log);
  ~ShardedParameters() override;
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  void before_forward(size_t section) override;
  void after_forward(size_t section) override;
  void before_backward(size_t section) override;
  void after_backward(size_t section) override;

  /// Behind backward() of a micro-batch. Throws c10::Error naming a unit without all gradients.
  void end_micro_batch();
  /// Behind the last one: every piece has its gradient.
  void give_gradients();

  /// What this rank keeps of each parameter of the model, in their order: [size] of its values,
  /// maybe none.
  const std::vector<at::Tensor>& pieces() const { return pieces_; }
  /// Whether the weights of parameter `i` decay: pieces do not show its axes.
  std::vector<bool> matrices() const;
  /// Which elements of parameter `i` its piece has.
  ShardLayout::Piece piece_place(size_t i) const;
  const ShardCollectives& collectives() const { return collectives_; }
  /// No pass may follow.
  void leave() { collectives_.leave(); }

  /// While it lives all parameters are there, and nothing is averaged. Collective.
  class Whole {
   public:
    explicit Whole(ShardedParameters& sharded);
    ~Whole();
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

   private:
    ShardedParameters& sharded_;
  };

 private:
  /// A parameter's place: its unit, and its index there.
  struct Place {
    size_t unit, index;
  };
  ShardUnit& unit_of(size_t section) { return *units_[unit_of_section_[section]]; }
  void make_units(at::Device device);
  void watch_gradients(size_t unit);
  void gradient_arrived(size_t unit);

  Decoder model_;
  ShardCollectives collectives_;
  std::vector<std::unique_ptr<ShardUnit>> units_;
  std::vector<size_t> unit_of_section_;
  std::vector<Place> places_;  ///< of the model's parameters, in their order
  std::vector<at::Tensor> pieces_;
  /// Gradient accumulators with a hook each; they would not outlive a pass otherwise.
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, uintptr_t>> watched_;
  std::vector<size_t> arrived_;     ///< gradients of each unit in this micro-batch
  ShardUnit* averaging_ = nullptr;  ///< the unit whose gradients are under way
  bool whole_ = false;
};

}  // namespace nsa::train
