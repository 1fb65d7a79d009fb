#include <gtest/gtest.h>

#include <filesystem>

#include "harness/evidence/storage/files.h"
#include "harness/fault_injection/faults/testing.h"

namespace harness::injection {
namespace {

/// An nsa-train that runs the shell words `lone` when it is one of two ranks and alone, else exits
/// with 0.
void write_lone_trainer(const std::filesystem::path& bin, const std::string& lone) {
  const auto path = bin / "nsa-train";
  write_bytes(path,
              "#!/bin/sh\nfor ranks; do :; done\n[ $ranks = 2 ] && [ -z \"$WORLD_SIZE\" ] && { " +
                  lone + "; }\nexit 0\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

// P21: a process that is to be one of two ranks and is alone.
TEST(RankFaults, ALoneRankIsSeenWhereItIsNamed) {
  const TempDir bin;
  const SelftestSetup setup{.bin_dir = bin.path()};
  write_lone_trainer(bin.path(), "echo 'RANK_FAULT: 2 ranks asked for, 1 there' >&2; exit 1");
  EXPECT_TRUE(inject_lone_rank(setup).as_wanted) << inject_lone_rank(setup).seen;
  EXPECT_TRUE(control_lone_rank(setup).as_wanted) << control_lone_rank(setup).seen;
  EXPECT_TRUE(control_both_ranks(setup).as_wanted) << control_both_ranks(setup).seen;
  for (const char* lone : {"exit 0",                                   // trains alone
                           "exit 1",                                   // no message
                           "echo 'RANK_FAULT: 2 ranks'; exit 0",       // and goes on
                           "echo 'RANK_FAULT: no reason'; exit 1",     // no number of ranks
                           "echo 'RANK_FAULT: 2 ranks'; kill -9 $$"})  // dies of something else
  {
    write_lone_trainer(bin.path(), lone);
    EXPECT_FALSE(inject_lone_rank(setup).as_wanted) << lone;
  }
}

// P21: two ranks, of which the second one is lost; here rank 0 alone does something.
TEST(RankFaults, ALostRankIsSeenWhereItIsNamed) {
  const TempDir bin;
  const SelftestSetup setup{.bin_dir = bin.path()};
  const auto write = [&](const std::string& first) {
    write_bytes(bin / "nsa-train", "#!/bin/sh\n[ \"$RANK\" = 0 ] && { " + first + "; }\nexit 0\n");
    std::filesystem::permissions(bin / "nsa-train", std::filesystem::perms::owner_all);
  };
  write("echo 'RANK_FAULT: rank 0, step 4: allreduce failed' >&2; exit 1");
  EXPECT_TRUE(inject_lost_rank(setup).as_wanted) << inject_lost_rank(setup).seen;
  write("echo 'RANK_FAULT: not all of the 2 ranks came' >&2; exit 1");
  EXPECT_FALSE(inject_lost_rank(setup).as_wanted) << "never trained together";
  write("exit 1");
  EXPECT_FALSE(inject_lost_rank(setup).as_wanted) << "no message";
  write("echo 'RANK_FAULT: rank 0, step 4: x' >&2; exit 0");
  EXPECT_FALSE(inject_lost_rank(setup).as_wanted) << "goes on";
  EXPECT_FALSE(control_both_ranks(setup).as_wanted) << "a fault where there is none";
}

TEST(RankFaults, AMissingProgramIsNeverAsWanted) {
  for (const Action action :
       {inject_lone_rank, control_lone_rank, inject_lost_rank, control_both_ranks})
    expect_never_as_wanted_without_programs(action);
}

}  // namespace
}  // namespace harness::injection
