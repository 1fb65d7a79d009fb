#include "suites/instrument/cupti/call_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace suites {
namespace {

std::atomic<uint64_t> the_time{0};
uint64_t now() { return the_time += 10; }

/// One call from its begin to its end, as CUPTI reports it.
void call(CallLog& log, CUpti_CallbackId id, uint32_t correlation) {
  uint64_t shared = 0;
  CUpti_CallbackData data{};
  data.correlationData = &shared;
  data.correlationId = correlation;
  data.callbackSite = CUPTI_API_ENTER;
  log.on_call(CUPTI_CB_DOMAIN_RUNTIME_API, id, data);
  data.callbackSite = CUPTI_API_EXIT;
  log.on_call(CUPTI_CB_DOMAIN_RUNTIME_API, id, data);
}

std::vector<uint32_t> correlations(CallLog& log) {
  std::vector<uint32_t> all;
  for (const LoggedCall& each : log.take()) all.push_back(each.correlation);
  return all;
}

TEST(CallLog, HoldsTheFieldsOfACall) {
  the_time = 100;
  CallLog log(now, 8, 2);
  call(log, 211, 5);
  const auto calls = log.take();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].domain, CUPTI_CB_DOMAIN_RUNTIME_API);
  EXPECT_EQ(calls[0].id, 211u);
  EXPECT_EQ(calls[0].begin, 110u);
  EXPECT_EQ(calls[0].end, 120u);
  EXPECT_EQ(calls[0].correlation, 5u);
  EXPECT_EQ(calls[0].thread, static_cast<uint32_t>(gettid()));
  EXPECT_TRUE(log.take().empty()) << "taken once";
}

TEST(CallLog, EveryThreadHasItsOwnPageAndKeepsIt) {
  CallLog log(now, 8, 2);
  log.prepare(1);
  call(log, 1, 1);
  std::thread([&] { call(log, 1, 2); }).join();
  call(log, 1, 3);
  const auto calls = log.take();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].thread, calls[1].thread);
  EXPECT_NE(calls[1].thread, calls[2].thread);
  EXPECT_EQ(calls[1].correlation, 3u) << "thread by thread";
  EXPECT_EQ(log.lost(), 0);
}

TEST(CallLog, CountsCallsWithoutRoom) {
  CallLog log(now, 2, 1);
  for (uint32_t i = 1; i <= 5; ++i) call(log, 1, i);
  EXPECT_EQ(log.lost(), 3);
  EXPECT_THAT(correlations(log), testing::ElementsAre(1, 2));
  std::thread([&] { call(log, 1, 6); }).join();  // there is one page, and it is taken
  EXPECT_EQ(log.lost(), 4);
  call(log, 1, 7);
  EXPECT_THAT(correlations(log), testing::ElementsAre(7)) << "room again behind take()";
}

TEST(CallLog, ForgetsWhenCleared) {
  CallLog log(now, 8, 1);
  call(log, 1, 1);
  log.clear();
  call(log, 1, 2);
  EXPECT_THAT(correlations(log), testing::ElementsAre(2));
}

TEST(CallLog, ALogDoesNotWriteThePagesOfAnother) {
  CallLog first(now, 8, 1), second(now, 8, 1);
  call(first, 1, 1);
  call(second, 1, 2);
  EXPECT_THAT(correlations(first), testing::ElementsAre(1));
  EXPECT_THAT(correlations(second), testing::ElementsAre(2));
}

TEST(CallLog, CallWithoutBeginHasBeginZero) {
  CallLog log(now, 8, 1);
  uint64_t shared = 0;
  CUpti_CallbackData data{};
  data.correlationData = &shared;
  data.callbackSite = CUPTI_API_EXIT;
  log.on_call(CUPTI_CB_DOMAIN_DRIVER_API, 3, data);
  const auto calls = log.take();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].begin, 0u);
}

}  // namespace
}  // namespace suites
