// The rank of a process from the variables of torchrun and Slurm; the log of its collectives.
#include "nsa/train/ranks/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "nsa/program/input_error.h"
#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/record/step_watch.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;
using Map = std::map<std::string, std::string>;

RankPlace place_of(const Map& map) {
  return read_rank_place([&](const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::string error_of(const Map& map) {
  try {
    place_of(map);
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

const Map kTorchrun = {{"RANK", "3"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"MASTER_ADDR", "node7"},
                       {"MASTER_PORT", "29500"}};
const Map kSlurm = {{"SLURM_PROCID", "5"},
                    {"SLURM_STEP_NUM_TASKS", "8"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_STEP_NODELIST", "gpu[003-006]"},
                    {"SLURM_JOB_ID", "1234567"}};

Map with(Map map, const std::string& name, const std::string& value) {
  map[name] = value;
  return map;
}

TEST(RankPlace, OneProcessWithoutVariables) {
  const RankPlace place = place_of({});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.world, 1);
  // A batch script of Slurm is not a step: no other process was started.
  EXPECT_EQ(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).world, 1);
}

TEST(RankPlace, Torchrun) {
  const RankPlace place = place_of(kTorchrun);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.world, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.host, "node7");
  EXPECT_EQ(place.port, 29500);
}

TEST(RankPlace, Slurm) {
  const RankPlace place = place_of(kSlurm);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world, 8);
  EXPECT_EQ(place.host, "gpu003");
  EXPECT_EQ(place.port, 20000 + 1234567 % 20000);
  const auto host = [&](const std::string& list) {
    return place_of(with(kSlurm, "SLURM_STEP_NODELIST", list)).host;
  };
  EXPECT_EQ(host("a1"), "a1");
  EXPECT_EQ(host("a1,b2"), "a1");
  EXPECT_EQ(host("a[07,9-11]-ib,b3"), "a07-ib");
  EXPECT_EQ(host("x,a[1-2]"), "x");
  EXPECT_EQ(place_of(with(with(kSlurm, "MASTER_ADDR", "head"), "MASTER_PORT", "7")).port, 7);
}

TEST(RankPlace, FaultsNameTheVariable) {
  EXPECT_THAT(error_of(with(kTorchrun, "WORLD_SIZE", "0")),
              HasSubstr("WORLD_SIZE must be a number in 1..2147483647, got \"0\""));
  EXPECT_THAT(error_of(with(kTorchrun, "RANK", "8")),
              HasSubstr("RANK must be a number in 0..7, got \"8\""));
  EXPECT_THAT(error_of(with(kTorchrun, "RANK", "-1")), HasSubstr("got \"-1\""));
  EXPECT_THAT(error_of(with(kTorchrun, "MASTER_PORT", "x")), HasSubstr("MASTER_PORT must be"));
  EXPECT_THAT(error_of({{"RANK", "0"}}), HasSubstr("variable WORLD_SIZE is not set"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("variable MASTER_ADDR is not set, but others of torchrun are"));
  EXPECT_THAT(error_of(with(kSlurm, "SLURM_STEP_NODELIST", "a[1")), HasSubstr("set MASTER_ADDR"));
}

TEST(RankPlace, ARunMayDemandItsRanks) {
  EXPECT_NO_THROW(require_ranks({}, 0));
  EXPECT_NO_THROW(require_ranks({}, 1));
  EXPECT_THROW(require_ranks({}, 2), InputError);
}

TEST(CollectiveLog, TheFileHoldsTheLastLine) {
  const auto file =
      std::filesystem::temp_directory_path() / ("nsa_collective_" + std::to_string(getpid()));
  CollectiveLog log(file);
  const auto line = [&] {
    std::ifstream in(file);
    std::string text;
    std::getline(in, text);
    return text.substr(0, text.find_last_not_of(' ') + 1);
  };
  EXPECT_EQ(line(), "step 0: none, ended");
  log.at_step(12);
  log.begin("allreduce of bucket 3 (25.00 MiB)");
  EXPECT_EQ(line(), "step 12: allreduce of bucket 3 (25.00 MiB), begun");
  log.begin("x");
  log.end();
  EXPECT_EQ(line(), "step 12: x, ended");
  EXPECT_EQ(log.last(), line());
  std::filesystem::remove(file);
  EXPECT_THROW(CollectiveLog("/nowhere/at/all"), InputError);
}

TEST(StepWatch, CallsOnceAfterAStall) {
  using std::chrono::milliseconds;
  std::atomic<int> calls = 0;
  {
    StepWatch watch(0.2, [&](double silence_s) {
      EXPECT_GT(silence_s, 0.2);
      ++calls;
    });
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(milliseconds(40));
      watch.progress();
    }
    EXPECT_EQ(calls, 0);
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_EQ(calls, 1);
  }
  {
    const StepWatch quiet(100, [&](double) { ++calls; });
  }  // ends without waiting
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace nsa::train
