// Sums by peers against those of NCCL: the same bits, whichever rank is late. Two processes of this
// program on two GPUs; ends with 77 (skipped) where there are fewer.
#include "nsa/train/ranks/peer_sums.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace nsa::train {
namespace {

constexpr int64_t kNumel[] = {1, 7, 4099, 1000003, 12582912};
constexpr int64_t kMaxNumel = 12582912;
constexpr int kTimes = 12;

at::Tensor mean_by_group(RankGroup& group, const at::Tensor& whole, bool bf16) {
  std::vector<at::Tensor> sent = {bf16 ? whole.to(at::kBFloat16) : whole.clone()};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  group.group()->allreduce(sent, options)->wait();
  return sent.front().to(whole.scalar_type());
}

/// How many of this rank's means have other bits than the group's; `late`: the rank that waits on
/// the host before some of them.
int differing(RankGroup& group, int64_t late) {
  PeerSums peers(group, kMaxNumel * 4);
  int differ = 0;
  for (int i = 0; i < kTimes; ++i)
    for (const int64_t numel : kNumel)
      for (const bool bf16 : {false, true}) {
        const at::Tensor own = at::randn({numel}, at::TensorOptions(group.device()));
        const at::Tensor want = mean_by_group(group, own, bf16);
        if (group.rank() == late && i % 3 == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
        peers.average(own, bf16);
        differ += at::equal(own, want) ? 0 : 1;
      }
  return differ;
}

int run_rank(int64_t rank, uint16_t port) {
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(rank));
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  at::accelerator::setDeviceIndex(device.index());
  at::manual_seed(static_cast<uint64_t>(3 + rank));
  RankGroup group(
      RankPlace{.rank = rank, .world = 2, .local_rank = rank, .host = "127.0.0.1", .port = port},
      device, std::chrono::seconds(60));
  const std::string obstacle = PeerSums::obstacle(group);
  if (!obstacle.empty()) std::printf("rank %d: %s\n", static_cast<int>(rank), obstacle.c_str());
  int differ = obstacle.empty() ? 0 : 1;
  for (const int64_t late : {int64_t{0}, int64_t{1}})
    if (obstacle.empty()) differ += differing(group, late);
  std::printf("rank %d: %d differ\n", static_cast<int>(rank), differ);
  group.leave();
  return differ == 0 ? 0 : 1;
}

std::string self;

TEST(PeerSumsOnCuda, MeansHaveTheBitsOfNccl) {
  const std::string both =
      self + " rank 0 29873 & p=$!; " + self + " rank 1 29873; s=$?; wait $p; exit $((s + $?))";
  EXPECT_EQ(std::system(both.c_str()), 0);
}

}  // namespace
}  // namespace nsa::train

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "rank")
    return nsa::train::run_rank(std::atoi(argv[2]), static_cast<uint16_t>(std::atoi(argv[3])));
  ::testing::InitGoogleTest(&argc, argv);
  nsa::train::self = argv[0];
  if (at::accelerator::deviceCount() < 2) {
    std::puts("fewer than two GPUs: not run");
    return 77;
  }
  return RUN_ALL_TESTS();
}
