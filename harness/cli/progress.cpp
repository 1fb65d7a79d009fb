#include "harness/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/text/plain_text.h"
#include "harness/cli/process_count.h"
#include "harness/cli/progress_text.h"
#include "harness/process/elapsed.h"
#include "harness/results/number.h"

namespace harness::cli {
namespace {

constexpr size_t kBarWidth = 20;
constexpr double kLogEvery = 10;  ///< seconds between lines of a phase in a log

std::string left_text(double seconds) {
  const std::string text = about_left(seconds);
  return text.empty() ? "" : "; run: " + text;
}

/// The phase at work, and what the run still takes.
class Watch {
 public:
  Watch(TimeLeft clock, std::function<double()> seconds)
      : clock_(std::move(clock)), seconds_(std::move(seconds)) {}

  void start(const PlannedPhase& phase) {
    clock_.start(phase);
    processes_ = ProcessCount(phase);
    begin_ = seconds_();
  }
  void start_process(const std::string& group) { processes_.start(group, in_phase()); }
  void end(const PlannedPhase& phase, double seconds) {
    clock_.end(phase, seconds);
    processes_ = {};
    begin_ = seconds_();
  }
  const ProcessCount& processes() const { return processes_; }
  double now() const { return seconds_(); }

  /// `eta_s`: what the process at work expects still to take. That of one process is the phase's.
  std::string left(double eta_s = 0) const {
    const double process = processes_.of() == 1 ? eta_s : processes_.left(in_phase());
    return left_text(clock_.seconds(in_phase(), process));
  }

 private:
  double in_phase() const { return seconds_() - begin_; }

  TimeLeft clock_;
  std::function<double()> seconds_;
  ProcessCount processes_;
  double begin_ = 0;
};

/// One line an event; beats and processes at most every 10 s.
class LogProgress : public Observer {
 public:
  LogProgress(TimeLeft clock, Screen screen)
      : watch_(std::move(clock), screen.seconds), screen_(std::move(screen)) {}

  void on_phase_start(const PlannedPhase& phase, size_t number, size_t total) override {
    watch_.start(phase);
    print(fmt::format("[{}/{}] {}: {}", number, total, phase.id, phase.title));
    last_ = watch_.now();
  }
  void on_group_start(const PlannedPhase& phase, const std::string& group, int) override {
    watch_.start_process(group);
    const ProcessCount& all = watch_.processes();
    if (all.of() > 1 && is_due())
      print(fmt::format("      {}: process {} of {}{}", phase.id, all.number(), all.of(),
                        watch_.left()));
  }
  void on_beat(const PlannedPhase& phase, const std::string& group,
               const base::protocol::Beat& beat, double eta_s) override {
    if (is_due())
      print(fmt::format("      {} {}: {}{}", phase.id, group, beat_text(beat, eta_s),
                        watch_.left(eta_s)));
  }
  void on_phase_end(const PlannedPhase& phase, const PhaseRecord& record) override {
    watch_.end(phase, record.seconds);
    print(fmt::format("      {} in {}{}{}{}", enum_name(record.status),
                      format_duration(record.seconds), watch_.left(),
                      record.reason.empty() ? "" : ": ", record.reason));
  }
  void on_note(const std::string& text) override { print("      " + text); }

 private:
  bool is_due() {
    if (watch_.now() - last_ < kLogEvery) return false;
    last_ = watch_.now();
    return true;
  }
  void print(const std::string& line) const { screen_.write(base::plain_text(line) + "\n"); }

  Watch watch_;
  Screen screen_;
  double last_ = 0;
};

/// A line that is rewritten while a phase runs and stays when it ends.
class TerminalProgress : public Observer {
 public:
  TerminalProgress(TimeLeft clock, Screen screen)
      : watch_(std::move(clock), screen.seconds), screen_(std::move(screen)) {}

  void on_phase_start(const PlannedPhase& phase, size_t number, size_t total) override {
    watch_.start(phase);
    head_ = fmt::format("[{}/{}] {}", number, total, phase.id);
    last_ = -1;
    rewrite(head_ + watch_.left());
  }
  void on_group_start(const PlannedPhase&, const std::string& group, int) override {
    watch_.start_process(group);
    const auto number = static_cast<int64_t>(watch_.processes().number());
    const auto of = static_cast<int64_t>(watch_.processes().of());
    if (of > 1)
      rewrite(fmt::format("{} {} process {}/{}{}", head_, bar(number - 1, of, kBarWidth), number,
                          of, watch_.left()));
  }
  void on_beat(const PlannedPhase&, const std::string&, const base::protocol::Beat& beat,
               double eta_s) override {
    if (watch_.now() - last_ < 0.1) return;
    last_ = watch_.now();
    rewrite(fmt::format("{} {} {}{}", head_, bar(beat.step, beat.of, kBarWidth),
                        beat_text(beat, eta_s), watch_.left(eta_s)));
  }
  void on_phase_end(const PlannedPhase& phase, const PhaseRecord& record) override {
    watch_.end(phase, record.seconds);
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

  Watch watch_;
  Screen screen_;
  std::string head_;
  double last_ = -1;
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
  screen.seconds = [begin = std::chrono::steady_clock::now()] { return seconds_since(begin); };
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
