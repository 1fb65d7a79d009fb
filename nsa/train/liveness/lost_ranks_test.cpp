// Ranks that are stopped or hang are named within 10 s by default, ranks that work for 20 s are
// waited for. Ranks are processes over Gloo.
#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

using ::testing::Not;

constexpr double kNamedWithinS = 10;

class LostRanksTest : public RanksTest {
 protected:
  static std::string note_time(const std::string& file) { return "date +%s.%N > " + file + "; "; }
  double seconds_between(const std::string& a, const std::string& b) {
    return std::stod(slurp(b)) - std::stod(slurp(a));
  }
  std::string ranks(int64_t world, const Port& port) {
    std::string command;
    for (int64_t r = 0; r < world; ++r)
      command += rank(r, world, port, "--model small.json --batch 2 --steps 1000000 --result r");
    return command;
  }
  /// One rank of a sharded run whose first checkpoint takes as long as `how` states.
  std::string busy(int64_t r, const Port& port, const std::string& how, const std::string& more) {
    return start(r, 2, port,
                 "--data synthetic --warmup 2 --model small.json --batch 2 --shard full "
                 "--checkpoints c --result r " +
                     more,
                 "BUSY_SYNC='" + how + "' LD_PRELOAD=" + base::build_dir() +
                     "/test_libraries/libnsa_busy.so");
  }
};

TEST_F(LostRanksTest, AStoppedRankIsNamedByAllOthers) {
  const Port port;
  shell(ranks(3, port) + wait_for("\"at\":\"step\".*\"step\":4,", "r", "p0") + "kill -STOP $p1; " +
        note_time("lost") + "wait $p0; wait $p2; " + note_time("ended") + "kill -KILL $p1");
  EXPECT_LT(seconds_between("lost", "ended"), kNamedWithinS);
  for (const char* err : {"err0", "err2"})
    EXPECT_THAT(slurp(err), HasSubstr("HANG: rank 1 of 3 gives no sign of life for "));
  EXPECT_THAT(slurp("err0"), HasSubstr("its last collective: step "));
  EXPECT_EQ(of_type(lines_of("r"), "finding").at(0)["code"], "HANG");
}

TEST_F(LostRanksTest, AStoppedRank0IsNamedThoughItKeepsTheStore) {
  const Port port;
  shell(ranks(2, port) + wait_for("\"at\":\"step\".*\"step\":4,", "r.rank1", "p1") +
        "kill -STOP $p0; " + note_time("lost") + "wait $p1; " + note_time("ended") +
        "kill -KILL $p0");
  EXPECT_LT(seconds_between("lost", "ended"), kNamedWithinS);
  EXPECT_THAT(slurp("err1"), HasSubstr("HANG: rank 0 of 2, which keeps the store where ranks meet,"
                                       " does not answer for "));
}

/// A write to a rank that has just died raises it; an error that can be told must come of it.
TEST_F(LostRanksTest, ARankIsNotEndedByTheSignalOfABrokenConnection) {
  const Port port;
  const std::string args = "--model small.json --batch 2 --steps 100 --result r";
  EXPECT_EQ(shell(rank(0, 2, port, args) + rank(1, 2, port, args) +
                  wait_for("\"at\":\"step\".*\"step\":4,", "r", "p0") +
                  "kill -PIPE $p0 $p1 || exit 9; wait $p0; a=$?; wait $p1; exit $((a + $?))"),
            0)
      << slurp("err0") << slurp("err1");
}

/// The thread of signs of life goes on; the main thread never returns.
TEST_F(LostRanksTest, ARankThatHangsIsNamed) {
  const Port port;
  const std::string more = "--steps 1000000 --checkpoint-every 4 ";
  shell(busy(0, port, "compute 0", more) + busy(1, port, "sleep 600", more) +
        wait_for("\"at\":\"step\".*\"step\":4,", "r.rank1", "p1") + note_time("lost") +
        "wait $p0; wait $p1; " + note_time("ended"));
  EXPECT_LT(seconds_between("lost", "ended"), kNamedWithinS);
  EXPECT_THAT(slurp("err0"), HasSubstr("HANG: hanging: rank 1 of 2; none did anything for "));
  EXPECT_THAT(slurp("err0"), HasSubstr("; rank 1 step 4: "));
}

TEST_F(LostRanksTest, RanksThatComputeOrWriteFor20SecondsAreWaitedFor) {
  const Port port;
  const std::string more = "--steps 6 --checkpoint-every 4 ";
  EXPECT_EQ(shell(busy(0, port, "disk 20", more) + busy(1, port, "compute 20", more) +
                  note_time("begun") + "wait $p0; a=$?; wait $p1; b=$?; " + note_time("ended") +
                  "exit $((a + b))"),
            0)
      << slurp("err0") << slurp("err1");
  EXPECT_GT(seconds_between("begun", "ended"), 20) << "nothing took long";
  EXPECT_THAT(slurp("err0") + slurp("err1"), Not(HasSubstr("HANG")));
}

}  // namespace
}  // namespace nsa::train
