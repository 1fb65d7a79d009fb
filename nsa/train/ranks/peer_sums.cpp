#include "nsa/train/ranks/peer_sums.h"

#include "nsa/program/input_error.h"

#ifdef NSA_WITH_CUDA
#include <ATen/ATen.h>
#include <c10/util/env.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#endif

namespace nsa::train {

#ifdef NSA_WITH_CUDA
namespace {

namespace symmetric = c10d::symmetric_memory;
constexpr int64_t kPeers = 2;

/// Host and GPU, as "name 1".
std::string place_of(const RankGroup& group) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + " " + std::to_string(group.device().index());
}

/// Whether this rank's GPU reads that of `place`.
bool reads(const RankGroup& group, const std::string& place) {
  const std::string own = place_of(group);
  if (place == own) return true;
  const size_t space = place.rfind(' ');
  if (place.substr(0, space) != own.substr(0, own.rfind(' '))) return false;
  int can = 0;
  return cudaDeviceCanAccessPeer(&can, group.device().index(),
                                 std::stoi(place.substr(space + 1))) == cudaSuccess &&
         can != 0;
}

/// A name that no earlier one of this process has, and the same on both ranks.
std::string next_name() {
  static int64_t made = 0;
  return "nsa gradients " + std::to_string(made++);
}

}  // namespace

struct PeerSums::Impl {
  Impl(RankGroup& group, int64_t max_bytes)
      : other(1 - static_cast<int>(group.rank())),
        timeout_ms(static_cast<size_t>(group.timeout().count())) {
    // Nothing here is multicast, and where that is switched off its set-up fails.
    c10::utils::set_env("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1", /*overwrite=*/false);
    c10d::register_process_group(name, group.group());
    own = symmetric::empty_strided_p2p({max_bytes}, {1}, at::kByte, group.device(), name,
                                       std::nullopt);
    handle = symmetric::rendezvous(own, name);
    received = at::empty({max_bytes}, own.options());
  }
  ~Impl() { c10d::unregister_process_group(name); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Both ranks have come so far on their streams.
  void meet() const { handle->barrier(/*channel=*/0, timeout_ms); }

  std::string name = next_name();
  int other;
  size_t timeout_ms;
  at::Tensor own, received;
  c10::intrusive_ptr<symmetric::SymmetricMemory> handle;
};

std::string PeerSums::obstacle(RankGroup& group) {
  if (!group.device().is_cuda()) return "the ranks are on CPUs";
  if (group.world() != kPeers) return "there are " + std::to_string(group.world()) + " ranks";
  const std::vector<std::string> places = group.gather(place_of(group));
  if (places.front() == places.back()) return "both ranks are on one GPU";
  const bool can = std::ranges::all_of(places, [&](const auto& p) { return reads(group, p); });
  const std::vector<std::string> all = group.gather(can ? "can" : "cannot");
  return std::ranges::count(all, "can") == kPeers ? ""
                                                  : "the GPUs cannot read one another's memory (" +
                                                        places.front() + ", " + places.back() + ")";
}

PeerSums::PeerSums(RankGroup& group, int64_t max_bytes)
    : impl_(std::make_unique<Impl>(group, max_bytes)) {}
PeerSums::~PeerSums() = default;

void PeerSums::average(const at::Tensor& whole, bool bf16) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = bf16 ? at::kBFloat16 : whole.scalar_type();
  const int64_t bytes = whole.numel() * static_cast<int64_t>(c10::elementSize(type));
  at::Tensor half = impl_->own.narrow(0, 0, bytes).view(type), mean = whole;
  const at::Tensor there = impl_->handle->get_buffer(impl_->other, {whole.numel()}, type, 0);
  const at::Tensor here = impl_->received.narrow(0, 0, bytes).view(type);
  at::mul_out(half, whole, at::scalar_tensor(0.5, whole.dtype()));
  impl_->meet();
  here.copy_(there, /*non_blocking=*/true);
  impl_->meet();  // neither half is written again before the other rank has it
  at::add_out(mean, half, here);
}
#else
struct PeerSums::Impl {};
std::string PeerSums::obstacle(RankGroup&) { return "the ranks are on CPUs"; }
PeerSums::PeerSums(RankGroup&, int64_t) {
  throw InputError("sums by peers need a build with CUDA; use the preset cuda");
}
PeerSums::~PeerSums() = default;
void PeerSums::average(const at::Tensor&, bool) {}
#endif

}  // namespace nsa::train
