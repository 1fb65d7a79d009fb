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

TEST(RankFaults, AMissingProgramIsNeverAsWanted) {
  for (const Action action :
       {inject_lone_rank, control_lone_rank, inject_killed_rank, control_both_ranks})
    expect_never_as_wanted_without_programs(action);
}

}  // namespace
}  // namespace harness::injection
