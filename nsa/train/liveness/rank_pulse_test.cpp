#include "nsa/train/liveness/rank_pulse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

constexpr PulseLimits kFast{.interval_s = .02, .silence_s = .4, .idle_s = .5, .told_s = .1};

void wait_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// A store in memory that can stop answering, or be lost.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> texts;
  bool stopped = false, gone = false;

  void set_state(bool stop, bool lose) {
    const std::lock_guard lock(mutex);
    stopped = stop, gone = lose;
    changed.notify_all();
  }
};

/// A rank's connection to the board; a rank that is stopped writes nothing more.
struct Connection : PulseStore {
  Connection(std::shared_ptr<Board> to, std::shared_ptr<std::atomic<bool>> silent)
      : board(std::move(to)), is_silent(std::move(silent)) {}
  std::shared_ptr<Board> board;
  std::shared_ptr<std::atomic<bool>> is_silent;

  std::unique_lock<std::mutex> answering() {
    std::unique_lock lock(board->mutex);
    board->changed.wait(lock, [this] { return !board->stopped; });
    if (board->gone) throw std::runtime_error("connection reset");
    return lock;
  }
  void set(const std::string& key, const std::string& text) override {
    const auto lock = answering();
    if (!*is_silent) board->texts[key] = text;
  }
  std::optional<std::string> get(const std::string& key) override {
    const auto lock = answering();
    const auto found = board->texts.find(key);
    return found == board->texts.end() ? std::nullopt : std::optional(found->second);
  }
};

/// One rank; its main thread is this test.
struct Rank {
  std::shared_ptr<std::atomic<bool>> silent = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<bool>> active = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<RankPulse> pulse;

  Rank(int64_t rank, int64_t world, const std::shared_ptr<Board>& board, bool judges_idle,
       PulseLimits limits)
      : pulse(std::make_unique<RankPulse>(
            RankPulse::Place{rank, world, judges_idle}, std::make_unique<Connection>(board, silent),
            PulseSource{.was_active = [a = active] { return a->load(); },
                        .last = [rank] { return "step 4: sum " + std::to_string(rank); },
                        .waits = [rank] { return rank == 1; },
                        .on_lost = [c = calls](const std::string&) { ++*c; }},
            limits)) {}
  std::string lost() const { return pulse->lost(); }
};

struct PulseTest : testing::Test {
  std::shared_ptr<Board> board = std::make_shared<Board>();
  std::vector<std::unique_ptr<Rank>> ranks;

  void start(int64_t world, bool judges_idle = true, PulseLimits limits = kFast) {
    for (int64_t r = 0; r < world; ++r)
      ranks.push_back(std::make_unique<Rank>(r, world, board, judges_idle, limits));
  }
  void all_active(bool active) {
    for (auto& rank : ranks) *rank->active = active;
  }
  std::string all_lost() const {
    std::string texts;
    for (const auto& rank : ranks) texts += rank->lost();
    return texts;
  }
};

TEST_F(PulseTest, ASilentRankIsNamedByAll) {
  start(3);
  wait_s(.1);
  *ranks[1]->silent = true;
  wait_s(1);
  for (const size_t r : {0, 2}) {
    EXPECT_THAT(ranks[r]->lost(), HasSubstr("rank 1 of 3 gives no sign of life for 0."));
    EXPECT_THAT(ranks[r]->lost(), HasSubstr("its last collective: step 4: sum 1"));
    EXPECT_EQ(*ranks[r]->calls, 1);
  }
}

TEST_F(PulseTest, ASilentRankIsNotNamedWhileTheOthersMakeProgress) {
  start(2);
  all_active(true);
  *ranks[1]->silent = true;
  for (int i = 0; i < 50; ++i, wait_s(.02)) ranks[0]->pulse->progress();
  EXPECT_EQ(ranks[0]->lost(), "");
}

TEST_F(PulseTest, ABusyRankIsWaitedFor) {
  start(3);
  *ranks[2]->active = true;  // 3 times the limits
  wait_s(1.5);
  EXPECT_EQ(all_lost(), "");
}

TEST_F(PulseTest, ARankThatMakesProgressIsWaitedFor) {
  start(2);
  for (int i = 0; i < 75; ++i, wait_s(.02)) ranks[1]->pulse->progress();
  EXPECT_EQ(all_lost(), "");
}

TEST_F(PulseTest, RanksOfWhichNoneDoesAnythingAreLost) {
  start(2);
  wait_s(1);
  for (const auto& rank : ranks) {
    EXPECT_THAT(rank->lost(), HasSubstr("hanging: rank 0 of 2; none did anything for 0."));
    EXPECT_THAT(rank->lost(), HasSubstr("rank 0 step 4: sum 0; rank 1 step 4: sum 1"));
    EXPECT_EQ(*rank->calls, 1);
  }
}

TEST_F(PulseTest, NobodyStaysWhereAllKnow) {
  PulseLimits limits = kFast;
  limits.told_s = 60;
  start(3, true, limits);
  const auto told = [](const auto& rank) { return *rank->calls == 1; };
  for (int i = 0; i < 500 && !std::ranges::all_of(ranks, told); ++i) wait_s(.02);
  EXPECT_TRUE(std::ranges::all_of(ranks, told)) << "not within 10 s, where they may stay 60";
}

TEST_F(PulseTest, WhereWorkLeavesNoTraceIdleRanksAreWaitedFor) {
  start(2, /*judges_idle=*/false);
  wait_s(1.2);
  EXPECT_EQ(all_lost(), "");
}

TEST_F(PulseTest, AStoreThatDoesNotAnswerIsTheLossOfRank0) {
  start(2);
  all_active(true);
  wait_s(.1);
  board->set_state(true, false);
  wait_s(1);
  EXPECT_THAT(ranks[1]->lost(), HasSubstr("rank 0 of 2, which keeps the store"));
  EXPECT_THAT(ranks[1]->lost(), HasSubstr("does not answer for 0."));
  board->set_state(false, false);
}

TEST_F(PulseTest, AStoreThatIsGoneIsTheLossOfRank0) {
  start(2);
  all_active(true);
  board->set_state(false, true);
  wait_s(1);
  EXPECT_THAT(ranks[1]->lost(), HasSubstr("is gone; last collective here: step 4: sum 1"));
}

TEST_F(PulseTest, ARankThatLeftIsNotMissed) {
  start(2);
  *ranks[0]->active = true;
  ranks.pop_back();
  wait_s(1);
  EXPECT_EQ(ranks[0]->lost(), "");
}

TEST_F(PulseTest, TheEndDoesNotWaitForAStoreThatIsStopped) {
  start(2, /*judges_idle=*/false);
  board->set_state(true, false);
  wait_s(.1);
  const auto begin = std::chrono::steady_clock::now();
  ranks.clear();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 1);
  board->set_state(false, false);
}

}  // namespace
}  // namespace nsa::train
