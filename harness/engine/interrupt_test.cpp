#include "harness/engine/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

namespace harness {
namespace {

using Handler = void (*)(int);

Handler handler_of(int signal) {
  struct sigaction now{};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

TEST(InterruptGuard, NotesASignalInsteadOfEnding) {
  const InterruptGuard guard;
  EXPECT_EQ(InterruptGuard::signal(), 0);
  ::raise(SIGTERM);
  EXPECT_EQ(InterruptGuard::signal(), SIGTERM);
  ::raise(SIGINT);
  EXPECT_EQ(InterruptGuard::signal(), SIGINT);
}

TEST(InterruptGuard, NohupIsHonoured) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  {
    const InterruptGuard guard;
    ::raise(SIGHUP);
    EXPECT_EQ(InterruptGuard::signal(), 0);
  }
  ::signal(SIGHUP, before);
}

/// A run inside of a run must not make the outer one forget that it was interrupted.
TEST(InterruptGuard, AnInnerOneKeepsWhatTheOuterOneNoted) {
  const InterruptGuard outer;
  ::raise(SIGINT);
  {
    const InterruptGuard inner;
    EXPECT_EQ(InterruptGuard::signal(), SIGINT);
  }
  ::raise(SIGTERM);
  EXPECT_EQ(InterruptGuard::signal(), SIGTERM) << "the outer one listens on";
}

TEST(InterruptGuard, TheNextRunBeginsWithoutASignal) {
  {
    const InterruptGuard first;
    ::raise(SIGINT);
  }
  const InterruptGuard second;
  EXPECT_EQ(InterruptGuard::signal(), 0);
}

TEST(InterruptGuard, RestoresTheEarlierHandlers) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ}) {
    const Handler before = handler_of(signal);
    auto guard = std::make_unique<InterruptGuard>();
    EXPECT_NE(handler_of(signal), before) << signal;
    guard.reset();
    EXPECT_EQ(handler_of(signal), before) << signal;
  }
}

/// A reader that is gone and a file that is too long are errors of the write.
TEST(InterruptGuard, AClosedPipeIsAnErrorOfTheWrite) {
  const InterruptGuard guard;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  ::close(ends[1]);
  EXPECT_EQ(InterruptGuard::signal(), 0);
}

/// poll() of the watch returns at once: the handlers do not restart what they interrupt.
TEST(InterruptGuard, ASignalEndsAWait) {
  const InterruptGuard guard;
  ::alarm(0);
  struct sigaction now{};
  ::sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_flags & SA_RESTART, 0);
}

}  // namespace
}  // namespace harness
