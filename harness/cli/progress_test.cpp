#include "harness/cli/progress.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "harness/cli/testing.h"

namespace harness::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

PlannedPhase shown_phase(double minutes = 0) {
  PlannedPhase phase;
  phase.id = "oracle";
  phase.title = "The \x1b[31moracle\n";
  phase.minutes = minutes;
  return phase;
}

PhaseRecord record(StepStatus status, double seconds, const std::string& reason = "") {
  PhaseRecord record;
  record.status = status;
  record.seconds = seconds;
  record.reason = reason;
  return record;
}

double clock_of_test = 0;

/// Everything an observer writes to a screen.
template <class Events>
std::string written(bool terminal, size_t columns, bool colour, Events events,
                    const Options& options = {}, const Plan& plan = {}) {
  std::string text;
  Screen screen{.terminal = terminal,
                .colour = colour,
                .columns = [columns] { return columns; },
                .write = [&text](const std::string& more) { text += more; },
                .seconds = [] { return clock_of_test; }};
  events(*make_progress(options, TimeLeft(plan), screen));
  return text;
}

TEST(Progress, ALogHasOneLineAnEvent) {
  const std::string text = written(false, 0, false, [](Observer& observer) {
    observer.on_phase_start(shown_phase(), 2, 9);
    observer.on_phase_end(shown_phase(), record(StepStatus::kFailed, 125, "g01: \x1b]0;gone\a"));
    observer.on_note("left \r\n behind");
  });
  EXPECT_THAT(text, HasSubstr("[2/9] oracle: The  [31moracle"));
  EXPECT_THAT(text, HasSubstr("FAILED in 2 min 05 s: g01: "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.find_first_of("\x1b\a\r"), std::string::npos);
}

TEST(Progress, BeatsOfALogAreRare) {
  const std::string text = written(false, 0, false, [](Observer& observer) {
    observer.on_phase_start(shown_phase(), 1, 1);
    for (int step = 0; step < 1000; ++step)
      observer.on_beat(shown_phase(), "g01", {.step = step, .of = 1000, .at = "\x1b[2J"}, 5);
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(Progress, ALogNamesTheProcessesOfALongPhase) {
  Plan plan;
  plan.phases = {shown_phase(1)};
  plan.phases[0].groups.resize(10);
  const auto run = [&](Observer& observer) {
    observer.on_phase_start(plan.phases[0], 6, 6);
    for (const char* group : {"g01", "g02", "g03"}) {
      observer.on_group_start(plan.phases[0], group, 1);
      clock_of_test += 60;
    }
  };
  EXPECT_THAT(written(false, 0, false, run, {}, plan),
              HasSubstr("      oracle: process 3 of 10; run: about 8 min left\n"));
  EXPECT_THAT(written(true, 200, false, run, {}, plan),
              HasSubstr("[##..................] process 2/10; run: about 9 min left"));
}

TEST(Progress, ATerminalRewritesOneLineWithABar) {
  const std::string text = written(true, 200, false, [](Observer& observer) {
    observer.on_phase_start(shown_phase(), 1, 2);
    observer.on_beat(shown_phase(), "g01", {.step = 30, .of = 40, .at = "\x1b[2J"}, 90);
    observer.on_phase_end(shown_phase(), record(StepStatus::kCompleted, 3));
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(
      text,
      HasSubstr("\r\x1b[K[1/2] oracle [###############.....] step 30/40  [2J, 1 min 30 s left"));
  EXPECT_THAT(text, HasSubstr("COMPLETED          3 s  [1/2] oracle The  [31moracle"));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b[2J")), Not(HasSubstr("\x1b[32m"))));
}

TEST(Progress, NoLineIsWiderThanTheTerminal) {
  const std::string text = written(true, 30, true, [](Observer& observer) {
    observer.on_phase_start(shown_phase(), 1, 2);
    observer.on_beat(shown_phase(), "g01", {.step = 30, .of = 40, .at = "forward"}, 90);
    observer.on_phase_end(shown_phase(), record(StepStatus::kNotRun, 3, "a long reason, éèà"));
    observer.on_note(std::string(100, 'x'));
  });
  EXPECT_THAT(text, HasSubstr("\x1b[33mNOT_RUN   \x1b[0m"));
  std::string shown = text;
  for (const char* code : {"\x1b[33m", "\x1b[0m", "\x1b[K"})
    for (size_t at = shown.find(code); at != std::string::npos; at = shown.find(code))
      shown.erase(at, std::string(code).size());
  size_t width = 0;
  for (const char c : shown) {
    if ((c & 0xC0) != 0x80) ++width;
    if (c == '\r' || c == '\n') width = 0;
    EXPECT_LE(width, 30U);
  }
}

TEST(Progress, WhyAPhaseFailedIsNeverCut) {
  const std::string reason(200, 'r');
  const std::string text = written(true, 40, true, [&](Observer& observer) {
    observer.on_phase_start(shown_phase(), 1, 2);
    observer.on_phase_end(shown_phase(), record(StepStatus::kFailed, 3, reason));
  });
  EXPECT_THAT(text, HasSubstr("\x1b[31mFAILED    \x1b[0m"));
  EXPECT_THAT(text, HasSubstr("\n           " + reason + "\n"));
}

TEST(Progress, TheTimeLeftOfTheRunIsShown) {
  Plan plan;
  plan.phases = {shown_phase(1), shown_phase(6)};
  EXPECT_THAT(
      written(
          true, 200, false,
          [&](Observer& observer) { observer.on_phase_start(plan.phases[0], 1, 3); }, {}, plan),
      HasSubstr("[1/3] oracle; run: about 7 min left"));
}

TEST(Progress, QuietAndJsonReportNothing) {
  Options quiet, json;
  quiet.quiet = true;
  json.json = true;
  for (const Options& options : {quiet, json})
    EXPECT_EQ(written(
                  true, 80, true,
                  [](Observer& observer) {
                    observer.on_phase_start(shown_phase(), 1, 1);
                    observer.on_note("x");
                  },
                  options),
              "");
}

TEST(Progress, ARedirectedStreamIsALogWithoutColours) {
  testing::internal::CaptureStderr();
  const Screen screen = standard_error();
  screen.write("x");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "x");
  EXPECT_FALSE(screen.terminal);
  EXPECT_FALSE(screen.colour);
}

}  // namespace
}  // namespace harness::cli
