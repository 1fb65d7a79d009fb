#include "nsa/train/ranks/rank_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "nsa/program/input_error.h"
#include "nsa/train/ranks/rank_backends.h"

namespace nsa::train {
namespace {

/// Counts a thread that waits for other ranks.
class Waiting {
 public:
  explicit Waiting(std::shared_ptr<std::atomic<int>> count) : count_(std::move(count)) {
    ++*count_;
  }
  ~Waiting() { --*count_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::shared_ptr<std::atomic<int>> count_;
};

constexpr size_t kBroadcastBytes = size_t{64} << 20;  ///< that travel at a time

/// torchrun keeps a store of its own at MASTER_PORT and announces it; its ranks are clients there.
bool store_is_there() {
  const auto agent = environment_variable("TORCHELASTIC_USE_AGENT_STORE");
  return agent && *agent == "True";
}

c10::intrusive_ptr<c10d::Store> open_store(const RankPlace& place,
                                           std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = place.rank == 0 && !store_is_there();
  options.numWorkers = static_cast<size_t>(place.world);
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(place.host, options);
    const auto run = environment_variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
    return c10::make_intrusive<c10d::PrefixStore>("nsa/" + run, store);
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    const bool taken = what.find("EADDRINUSE") != std::string::npos ||
                       what.find("already in use") != std::string::npos;
    throw InputError("RANK_FAULT: rank " + std::to_string(place.rank) + " of " +
                     std::to_string(place.world) +
                     (taken ? " cannot listen at " : " cannot reach ") + place.host + ":" +
                     std::to_string(place.port) +
                     (taken ? ": the port is in use; choose another MASTER_PORT"
                            : "; is rank 0 running there, and MASTER_ADDR right?") +
                     " (" + what.substr(0, what.find('\n')) + ")");
  }
}

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

}  // namespace

RankGroup::RankGroup(const RankPlace& place, at::Device device, std::chrono::milliseconds timeout)
    : RankGroup(place, device, timeout, open_store(place, timeout)) {}

RankGroup::RankGroup(const RankPlace& place, at::Device device, std::chrono::milliseconds timeout,
                     c10::intrusive_ptr<c10d::Store> store)
    : place_(place),
      device_(device),
      timeout_(timeout),
      backend_(device.is_cuda() ? "nccl" : "gloo"),
      store_(std::move(store)) {
  const int rank = static_cast<int>(place_.rank), world = static_cast<int>(place_.world);
  group_ = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, world);
  const auto type = device.is_cuda() ? c10d::ProcessGroup::BackendType::NCCL
                                     : c10d::ProcessGroup::BackendType::GLOO;
  try {
    const auto backend = device.is_cuda() ? make_nccl_backend(store_, rank, world, timeout)
                                          : make_gloo_backend(store_, rank, world, timeout,
                                                              is_this_machine(place_.host));
    group_->setBackend(device.type(), type, backend);
    group_->setDefaultBackend(type);
    barrier();  // a rank that is missing is found here, not in the first step
  } catch (const std::exception& error) {
    const std::string what = error.what();
    throw InputError("RANK_FAULT: rank " + std::to_string(place_.rank) + ": not all of the " +
                     std::to_string(place_.world) + " ranks came to " + place_.host + ":" +
                     std::to_string(place_.port) + " in time (" + what.substr(0, what.find('\n')) +
                     ")");
  }
}

RankGroup::~RankGroup() = default;

std::unique_ptr<RankGroup> RankGroup::subgroup(const std::string& name,
                                               const std::vector<int64_t>& members) const {
  RankPlace place = place_;
  const auto here = std::ranges::find(members, rank());
  TORCH_CHECK(here != members.end(), "nsa::RankGroup: members of ", name, " must have rank ",
              rank());
  place.rank = here - members.begin();
  place.world = static_cast<int64_t>(members.size());
  std::unique_ptr<RankGroup> group(new RankGroup(
      place, device_, timeout_, c10::make_intrusive<c10d::PrefixStore>(name, store_)));
  group->waiting_ = waiting_;
  return group;
}

void RankGroup::broadcast(const std::vector<at::Tensor>& tensors, int64_t root) {
  const at::NoGradGuard no_grad;
  const Waiting waiting(waiting_);
  c10d::broadcast_coalesced(group_, tensors, kBroadcastBytes, static_cast<int>(root));
}

void RankGroup::sum(at::Tensor tensor) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  const Waiting waiting(waiting_);
  group_->allreduce(tensors)->wait();
}

/// Every rank writes its own places of tensors that are 0 elsewhere; the sum has them all.
std::vector<std::string> RankGroup::gather(const std::string& text) {
  at::Tensor sizes = at::zeros({world()}, at::kLong);
  sizes[rank()] = static_cast<int64_t>(text.size());
  sizes = sum_on_host(sizes);
  const auto width = std::max<int64_t>(1, sizes.max().item<int64_t>());
  at::Tensor bytes = at::zeros({world(), width}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>() + rank() * width);
  bytes = sum_on_host(bytes);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < world(); ++i) {
    const uint8_t* begin = bytes.const_data_ptr<uint8_t>() + i * width;
    texts.emplace_back(begin, begin + sizes[i].item<int64_t>());
  }
  return texts;
}

at::Tensor RankGroup::sum_on_host(const at::Tensor& tensor) {
  const at::Tensor all = tensor.to(device_);
  sum(all);
  return all.cpu();
}

void RankGroup::barrier() { sum(at::zeros({1}, at::TensorOptions(device_).dtype(at::kFloat))); }

void RankGroup::leave() {
  const at::Tensor here = at::zeros({1}, at::TensorOptions(device_).dtype(at::kFloat));
  sum(here);
  here.cpu();  // what is under way would be aborted
  group_->shutdown();
}

}  // namespace nsa::train
