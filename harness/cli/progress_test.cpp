#include "harness/cli/progress.h"

#include <gmock/gmock.h>

#include "harness/cli/testing.h"

namespace harness::cli {
namespace {

using testing::HasSubstr;

/// What an observer writes to standard error, which is no terminal here.
template <class Events>
std::string written(const Options& options, Events events) {
  testing::internal::CaptureStderr();
  events(*make_progress(options));
  return testing::internal::GetCapturedStderr();
}

PlannedPhase phase() {
  PlannedPhase phase;
  phase.id = "oracle";
  phase.title = "The \x1b[31moracle\n";
  return phase;
}

TEST(Progress, ALogHasOneLineAnEvent) {
  const std::string text = written({}, [](Observer& observer) {
    observer.on_phase_start(phase(), 2, 9);
    PhaseRecord record;
    record.status = StepStatus::kFailed;
    record.reason = "g01: \x1b]0;gone\a";
    record.seconds = 125;
    observer.on_phase_end(phase(), record);
    observer.on_note("left \r\n behind");
  });
  EXPECT_THAT(text, HasSubstr("[2/9] oracle: The  [31moracle"));
  EXPECT_THAT(text, HasSubstr("FAILED in 2m05s: g01: "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_EQ(text.find_first_of("\x1b\a\r"), std::string::npos);
}

TEST(Progress, BeatsOfALogAreRare) {
  const std::string text = written({}, [](Observer& observer) {
    observer.on_phase_start(phase(), 1, 1);
    for (int step = 0; step < 1000; ++step)
      observer.on_beat(phase(), "g01", {.step = step, .of = 1000, .at = "\x1b[2J"}, 5);
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(Progress, QuietAndJsonSayNothing) {
  Options quiet, json;
  quiet.quiet = true;
  json.json = true;
  for (const Options& options : {quiet, json})
    EXPECT_EQ(written(options,
                      [](Observer& observer) {
                        observer.on_phase_start(phase(), 1, 1);
                        observer.on_note("x");
                      }),
              "");
}

}  // namespace
}  // namespace harness::cli
