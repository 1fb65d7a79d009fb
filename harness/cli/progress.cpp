#include "harness/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/text/plain_text.h"
#include "harness/cli/progress_text.h"
#include "harness/process/elapsed.h"
#include "harness/results/number.h"

namespace harness::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kBarWidth = 20;

std::string left_text(double seconds) {
  const std::string text = about_left(seconds);
  return text.empty() ? "" : "; run: " + text;
}

/// What the process of a phase that has one expects still to take.
double left_of(const PlannedPhase& phase, double eta_s) {
  return phase.groups.size() == 1 ? eta_s : 0;
}

/// One line an event; beats at most every 10 s.
class LogProgress : public Observer {
 public:
  LogProgress(TimeLeft clock, Screen screen)
      : clock_(std::move(clock)), screen_(std::move(screen)) {}

  void on_phase_start(const PlannedPhase& phase, size_t number, size_t total) override {
    clock_.start(phase);
    print(fmt::format("[{}/{}] {}: {}", number, total, phase.id, phase.title));
    begin_ = last_ = Clock::now();
  }
  void on_beat(const PlannedPhase& phase, const std::string& group,
               const base::protocol::Beat& beat, double eta_s) override {
    if (seconds_since(last_) < 10) return;
    last_ = Clock::now();
    print(fmt::format("      {} {}: {}{}", phase.id, group, beat_text(beat, eta_s),
                      left_text(clock_.seconds(seconds_since(begin_), left_of(phase, eta_s)))));
  }
  void on_phase_end(const PlannedPhase& phase, const PhaseRecord& record) override {
    clock_.end(phase, record.seconds);
    print(fmt::format("      {} in {}{}{}{}", enum_name(record.status),
                      format_duration(record.seconds), left_text(clock_.seconds(0)),
                      record.reason.empty() ? "" : ": ", record.reason));
  }
  void on_note(const std::string& text) override { print("      " + text); }

 private:
  void print(const std::string& line) const { screen_.write(base::plain_text(line) + "\n"); }

  TimeLeft clock_;
  Screen screen_;
  Clock::time_point begin_ = Clock::now(), last_ = Clock::now();
};

/// A line that is rewritten while a phase runs and stays when it ends.
class TerminalProgress : public Observer {
 public:
  TerminalProgress(TimeLeft clock, Screen screen)
      : clock_(std::move(clock)), screen_(std::move(screen)) {}

  void on_phase_start(const PlannedPhase& phase, size_t number, size_t total) override {
    clock_.start(phase);
    head_ = fmt::format("[{}/{}] {}", number, total, phase.id);
    groups_ = phase.groups.size();
    started_ = 0;
    begin_ = Clock::now();
    last_ = {};
    rewrite(head_ + left());
  }
  void on_group_start(const PlannedPhase&, const std::string&, int) override {
    groups_ = std::max(groups_, ++started_);  // an A/B may ask for more than its first look
    if (groups_ > 1)
      rewrite(fmt::format(
          "{} {} process {}/{}{}", head_,
          bar(static_cast<int64_t>(started_) - 1, static_cast<int64_t>(groups_), kBarWidth),
          started_, groups_, left()));
  }
  void on_beat(const PlannedPhase& phase, const std::string&, const base::protocol::Beat& beat,
               double eta_s) override {
    if (seconds_since(last_) < 0.1) return;
    last_ = Clock::now();
    rewrite(fmt::format("{} {} {}{}", head_, bar(beat.step, beat.of, kBarWidth),
                        beat_text(beat, eta_s), left(left_of(phase, eta_s))));
  }
  void on_phase_end(const PlannedPhase& phase, const PhaseRecord& record) override {
    clock_.end(phase, record.seconds);
    const bool bad = record.status == StepStatus::kFailed || record.status == StepStatus::kPartial;
    const std::string word = fmt::format("{:<10}", enum_name(record.status));
    const std::string rest =
        fmt::format(" {:>11}  {} {}{}{}", format_duration(record.seconds), head_, phase.title,
                    bad || record.reason.empty() ? "" : " - ", bad ? "" : record.reason);
    clear();
    screen_.write(coloured(fit(word + base::plain_text(rest), screen_.columns()), word.size(),
                           record.status == StepStatus::kCompleted ? 32
                           : bad                                   ? 31
                                                                   : 33) +
                  "\n");
    // Why something went wrong is never cut.
    if (bad && !record.reason.empty())
      screen_.write("           " + base::plain_text(record.reason) + "\n");
  }
  void on_note(const std::string& text) override {
    rewrite(text);
    screen_.write("\n");
  }

 private:
  std::string left(double process_left = 0) const {
    return left_text(clock_.seconds(seconds_since(begin_), process_left));
  }
  void clear() const { screen_.write("\r\x1b[K"); }

  /// The first `count` characters of a line that was cut already: colours take no columns.
  std::string coloured(const std::string& line, size_t count, int colour) const {
    if (!screen_.colour || line.size() < count) return line;
    return fmt::format("\x1b[{}m{}\x1b[0m{}", colour, line.substr(0, count), line.substr(count));
  }
  void rewrite(const std::string& line) const {
    clear();
    screen_.write(fit(base::plain_text(line), screen_.columns()));
  }

  TimeLeft clock_;
  Screen screen_;
  std::string head_;
  size_t groups_ = 0, started_ = 0;
  Clock::time_point begin_ = Clock::now(), last_{};
};

/// One less than the width: a full line would wrap, and could not be rewritten.
size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) return size.ws_col - 1U;
  return 79;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

Screen standard_error() {
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string_view(kind) == "dumb";
  Screen screen;
  screen.terminal = isatty(STDERR_FILENO) != 0 && !dumb;
  screen.colour = screen.terminal && !is_set("NO_COLOR");
  screen.columns = terminal_columns;
  screen.write = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
  return screen;
}

std::unique_ptr<Observer> make_progress(const Options& options, TimeLeft clock, Screen screen) {
  if (options.quiet || options.json) return std::make_unique<Observer>();
  if (screen.terminal)
    return std::make_unique<TerminalProgress>(std::move(clock), std::move(screen));
  return std::make_unique<LogProgress>(std::move(clock), std::move(screen));
}

}  // namespace harness::cli
