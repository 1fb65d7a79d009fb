#include "harness/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "harness/evidence/plain_text.h"

namespace harness::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(seconds));
  return s < 60 ? fmt::format("{}s", s) : fmt::format("{}m{:02}s", s / 60, s % 60);
}

std::string bar(int64_t step, int64_t of) {
  constexpr int64_t kWidth = 20;
  const int64_t filled = of > 0 ? std::min(kWidth, step * kWidth / of) : 0;
  return "[" + std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(kWidth - filled), '.') + "]";
}

std::string beat_text(const protocol::Beat& beat, double eta_s) {
  std::string text = fmt::format("step {}", beat.step);
  if (beat.of > 0) text += fmt::format("/{}", beat.of);
  if (!beat.at.empty()) text += " " + beat.at;
  if (beat.rate) text += fmt::format(", {:.4g} {}", *beat.rate, beat.rate_unit);
  if (eta_s > 0) text += ", " + duration(eta_s) + " left";
  return plain_text(text);  // a worker may write anything into its beats
}

/// One line an event; beats at most every 10 s.
class LogProgress : public Observer {
 public:
  void on_phase_start(const PlannedPhase& phase, size_t number, size_t total) override {
    fmt::print(stderr, "[{}/{}] {}: {}\n", number, total, phase.id, plain_text(phase.title));
    last_ = Clock::now();
  }
  void on_beat(const PlannedPhase& phase, const std::string& group, const protocol::Beat& beat,
               double eta_s) override {
    if (Clock::now() - last_ < std::chrono::seconds(10)) return;
    last_ = Clock::now();
    fmt::print(stderr, "      {} {}: {}\n", phase.id, group, beat_text(beat, eta_s));
  }
  void on_phase_end(const PlannedPhase&, const PhaseRecord& record) override {
    fmt::print(stderr, "      {} in {}{}{}\n", enum_name(record.status), duration(record.seconds),
               record.reason.empty() ? "" : ": ", plain_text(record.reason));
  }
  void on_note(const std::string& text) override {
    fmt::print(stderr, "      {}\n", plain_text(text));
  }

 private:
  Clock::time_point last_ = Clock::now();
};

/// A line that is rewritten while a phase runs and stays when it ends.
class TerminalProgress : public Observer {
 public:
  TerminalProgress() : colour_(std::getenv("NO_COLOR") == nullptr) {}
  void on_phase_start(const PlannedPhase& phase, size_t number, size_t total) override {
    head_ = fmt::format("[{}/{}] {}", number, total, phase.id);
    groups_ = phase.groups.size();
    started_ = 0;
    rewrite(head_);
  }
  void on_group_start(const PlannedPhase&, const std::string&, int) override {
    ++started_;
    if (groups_ > 1)
      rewrite(fmt::format("{} {} process {}/{}", head_,
                          bar(static_cast<int64_t>(started_), static_cast<int64_t>(groups_)),
                          started_, groups_));
  }
  void on_beat(const PlannedPhase&, const std::string&, const protocol::Beat& beat,
               double eta_s) override {
    if (Clock::now() - last_ < std::chrono::milliseconds(100)) return;
    last_ = Clock::now();
    rewrite(fmt::format("{} {} {}", head_, bar(beat.step, beat.of), beat_text(beat, eta_s)));
  }
  void on_phase_end(const PlannedPhase& phase, const PhaseRecord& record) override {
    const bool good = record.status == StepStatus::kCompleted;
    const std::string word = fmt::format("{:<10}", enum_name(record.status));
    const std::string shown =
        colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", good ? 32 : 31, word) : word;
    rewrite(fmt::format("{} {:>7}  {} {}{}", shown, duration(record.seconds), head_,
                        plain_text(phase.title),
                        record.reason.empty() ? "" : " - " + plain_text(record.reason)));
    fmt::print(stderr, "\n");
  }
  void on_note(const std::string& text) override {
    rewrite(text);
    fmt::print(stderr, "\n");
  }

 private:
  static void rewrite(const std::string& line) { fmt::print(stderr, "\r\x1b[K{}", line); }

  bool colour_;
  std::string head_;
  size_t groups_ = 0, started_ = 0;
  Clock::time_point last_{};
};

}  // namespace

std::unique_ptr<Observer> make_progress(const Options& options) {
  if (options.quiet || options.json) return std::make_unique<Observer>();
  if (isatty(STDERR_FILENO) != 0) return std::make_unique<TerminalProgress>();
  return std::make_unique<LogProgress>();
}

}  // namespace harness::cli
