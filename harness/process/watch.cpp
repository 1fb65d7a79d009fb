#include "harness/process/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <set>
#include <thread>

#include "harness/evidence/storage/files.h"
#include "harness/process/autopsy.h"
#include "harness/process/failure_cause.h"
#include "harness/process/last_stage.h"
#include "harness/process/os/capped_log.h"
#include "harness/process/os/file_io.h"
#include "harness/process/os/mapped_libraries.h"
#include "harness/process/os/spawn.h"

namespace harness {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string seconds_text(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", s);
  return text;
}

/// One process from start to proof of its end.
class Watch {
 public:
  Watch(const WorkerSpec& spec, const WatchPolicy& policy, const WatchHooks& hooks)
      : spec_(spec),
        policy_(policy),
        hooks_(hooks),
        start_(now_s()),
        clock_(policy, start_),
        reader_(spec.want) {
    outcome_.group = spec.group;
  }

  GroupOutcome run() {
    start();
    try {
      follow();
      end_group();
    } catch (...) {  // our own disk is full: nothing may stay behind
      kill_group(key_, policy_.proof_s);
      ::waitpid(child_.pid, nullptr, 0);
      throw;
    }
    outcome_.seconds = now_s() - start_;
    judge();
    return std::move(outcome_);
  }

 private:
  enum class End { kExited, kHang, kTimeout, kInterrupted };

  void start();
  void follow();
  void poll_once(double wait_s);
  bool exited();
  void feed_input();
  void read_results();
  void look_at_libraries();
  bool input_is_due();
  void hear(const base::protocol::Line& line, double now);
  void escalate(const char* why);
  void wait_for_exit(double wait_s);
  std::string wait_for_device();
  void end_group();
  void judge();
  void judge_exit();
  void judge_channel();
  bool floods();
  void cut_flood();
  void fail(const FailureCause& why) {
    outcome_.cause = why.cause;
    outcome_.reason = why.reason;
    outcome_.infrastructure |= why.infrastructure;
  }
  std::string last_progress_text() const;

  const WorkerSpec& spec_;
  const WatchPolicy& policy_;
  const WatchHooks& hooks_;
  double start_;
  ProgressClock clock_;
  base::protocol::LineReader reader_;
  GroupOutcome outcome_;
  GroupKey key_;
  Child child_;
  Fd results_;
  CappedLog out_, err_;
  size_t input_sent_ = 0, lines_heard_ = 0;
  uint64_t bytes_heard_ = 0;
  std::set<std::string> libraries_;
  bool libraries_known_ = false, input_due_ = false;
  End end_ = End::kExited;
  bool exited_ = false;
  int wait_status_ = 0;
};

void Watch::start() {
  ::signal(SIGPIPE, SIG_IGN);  // a worker that closes its input must not end the engine
  std::error_code none;        // what a process before it recorded is not this one's
  if (!spec_.stages.empty()) std::filesystem::remove(spec_.stages, none);
  SpawnSpec spawn_spec{.argv = spec_.argv, .env = {}, .result_fd = -1};
  auto variables = spec_.env;
  variables[kGroupVariable] = spec_.marker;
  spawn_spec.env = worker_environment(variables);
  Fd channel;
  if (!spec_.result.empty()) {
    channel = create_append(spec_.result);
    results_ = Fd(::open(spec_.result.c_str(), O_RDONLY | O_CLOEXEC));
    if (!results_) throw_file_error(spec_.result, "open", errno);
    spawn_spec.result_fd = channel.get();
  }
  child_ = spawn(spawn_spec);
  key_ = {.session = child_.pid, .marker = spec_.marker};
  if (const auto stat = read_stat(child_.pid)) key_.not_before = stat->start_ticks;
  if (!child_.pidfd) outcome_.fallbacks.emplace_back("no pidfd: the end is polled with waitid");
  try {
    out_ = CappedLog(std::move(child_.out), spec_.out, policy_.log_cap);
    err_ = CappedLog(std::move(child_.err), spec_.err, policy_.log_cap);
  } catch (...) {
    kill_group(key_, policy_.proof_s);
    ::waitpid(child_.pid, nullptr, 0);
    throw;
  }
}

void Watch::follow() {
  while (!exited()) {
    poll_once(policy_.poll_s);
    const double now = now_s();
    if (exited()) break;
    if (hooks_.stop_signal && hooks_.stop_signal() != 0) {
      end_ = End::kInterrupted;
      fail({"INTERRUPTED", "interrupted by " + signal_name(hooks_.stop_signal())});
      return wait_for_exit(0);
    }
    if (floods()) {
      ::kill(-child_.pid, SIGKILL);  // at once: every moment is more to write
      return;
    }
    if (!(now - start_ <= policy_.timeout_s)) {
      end_ = End::kTimeout;
      fail({"TIMEOUT", "not finished after " + seconds_text(policy_.timeout_s) + " (timeout_s); " +
                           last_progress_text()});
      return escalate("TIMEOUT");
    }
    if (clock_.stalled(now)) {
      end_ = End::kHang;
      fail({"HANG", "no progress for " + seconds_text(clock_.silence_s(now)) + ", allowed are " +
                        seconds_text(clock_.allowance_s()) + "; " + last_progress_text()});
      return escalate("HANG");
    }
  }
}

/// Waits for an event and reads what the worker wrote.
void Watch::poll_once(double wait_s) {
  pollfd fds[4] = {
      {out_.fd(), POLLIN, 0},
      {err_.fd(), POLLIN, 0},
      {child_.pidfd.get(), POLLIN, 0},  // poll ignores negative descriptors
      {input_due_ && input_sent_ < spec_.input.size() ? child_.in.get() : -1, POLLOUT, 0}};
  const double longest = child_.pidfd && input_due_ ? wait_s : std::min(wait_s, 0.005);
  ::poll(fds, 4, static_cast<int>(longest * 1000));
  if (input_is_due()) feed_input();
  const auto written = out_.drain() + err_.drain();
  // Without the protocol, output is the only sign of progress.
  if (written > 0 && spec_.result.empty()) clock_.progress(now_s());
  read_results();
  look_at_libraries();
}

/// A worker that sleeps waits for its case line: what it is linked with is mapped, and is looked at
/// before it can end. A process that does not sleep within
/// `kPatience` gets its input nevertheless.
bool Watch::input_is_due() {
  constexpr double kPatience = 5;
  if (input_due_) return true;
  const auto stat = read_stat(child_.pid);
  const bool busy = stat && (stat->state == 'R' || stat->state == 'D');
  input_due_ = !busy || now_s() - start_ > kPatience;
  if (input_due_) libraries_.merge(mapped_libraries(child_.pid));
  return input_due_;
}

/// Until its first line: the libraries it is linked with are mapped before that.
void Watch::look_at_libraries() {
  if (libraries_known_) return;
  libraries_known_ = lines_heard_ > 0 || (spec_.result.empty() && out_.bytes() > 0);
  libraries_.merge(mapped_libraries(child_.pid));
}

void Watch::feed_input() {
  while (child_.in && input_sent_ < spec_.input.size()) {
    const ssize_t n = ::write(child_.in.get(), spec_.input.data() + input_sent_,
                              spec_.input.size() - input_sent_);
    if (n > 0)
      input_sent_ += static_cast<size_t>(n);
    else if (errno == EAGAIN)
      return;
    else if (errno != EINTR)
      break;  // it closed its input: its own affair
  }
  child_.in.reset();
}

void Watch::read_results() {
  if (!results_) return;
  char block[1 << 16];
  ssize_t n;
  while (bytes_heard_ <= policy_.result_cap &&
         (n = ::read(results_.get(), block, sizeof block)) > 0) {
    bytes_heard_ += static_cast<uint64_t>(n);
    reader_.feed({block, static_cast<size_t>(n)});
  }
  const double now = now_s();
  for (; lines_heard_ < reader_.lines().size(); lines_heard_++)
    hear(reader_.lines()[lines_heard_], now);
}

void Watch::hear(const base::protocol::Line& line, double now) {
  clock_.progress(now);
  const auto* beat = std::get_if<base::protocol::Beat>(&line.message);
  if (beat == nullptr || beat->at == base::protocol::kEarlierStep) return;
  clock_.beat(now, *beat);
  outcome_.last_beat = base::protocol::to_object(*beat);
  outcome_.last_beat["t"] = line.t;
  if (hooks_.on_beat) hooks_.on_beat(*beat, clock_.eta_s());
}

/// True once the leader is a zombie. It is not reaped yet: its id must not be given to another
/// process before the group is gone.
bool Watch::exited() {
  siginfo_t info{};
  if (!exited_ &&
      ::waitid(P_PID, static_cast<id_t>(child_.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0)
    exited_ = info.si_pid == child_.pid;
  return exited_;
}

void Watch::wait_for_exit(double wait_s) {
  for (const double end = now_s() + wait_s; !exited() && now_s() < end;) poll_once(0.01);
}

std::string Watch::last_progress_text() const {
  const std::string stage = last_stage(spec_.stages);
  return (outcome_.last_beat.is_null()
              ? "no heartbeat was seen"
              : "last heartbeat: " + base::protocol::print_line(outcome_.last_beat)) +
         (stage.empty() ? "" : "; last stage: " + stage);
}

/// Snapshot, TERM, grace. KILL and the proof follow in end_group, as for every other end.
void Watch::escalate(const char* why) {
  auto autopsy = take_autopsy(key_, why);
  autopsy["reason"] = outcome_.reason;
  autopsy["last_beat"] = outcome_.last_beat;
  autopsy["last_stage"] = last_stage(spec_.stages);
  autopsy["silence_s"] = clock_.silence_s(now_s());
  autopsy["allowance_s"] = clock_.allowance_s();
  if (hooks_.device_facts) autopsy["device_before"] = hooks_.device_facts();
  for (const double end = now_s() + policy_.snapshot_s; !exited() && now_s() < end;)
    poll_once(0.01);
  ::kill(-child_.pid, SIGTERM);
  wait_for_exit(policy_.grace_s);
  autopsy["ended_by"] = exited() ? "SIGTERM" : "SIGKILL";
  kill_group(key_, policy_.proof_s);
  if (hooks_.device_facts) autopsy["device_after"] = hooks_.device_facts();
  autopsy["device_held"] = wait_for_device();
  write_bytes(spec_.autopsy, base::protocol::print_line(autopsy) + "\n");
  outcome_.autopsy = spec_.autopsy.filename();
}

/// Memory of a killed process comes back in its own time. What is still held after the proof time
/// is a result: also with no process to blame.
std::string Watch::wait_for_device() {
  if (!hooks_.device_held) return "not looked at: the run is not on a device";
  std::string held = hooks_.device_held();
  for (const double end = now_s() + policy_.proof_s; !held.empty() && now_s() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    held = hooks_.device_held();
  }
  if (!held.empty()) outcome_.notes.push_back("device memory did not come back: " + held);
  return held;
}

/// Interrupted groups get TERM and the grace period; then all processes of any group are killed.
void Watch::end_group() {
  if (end_ == End::kInterrupted) {
    ::kill(-child_.pid, SIGTERM);
    wait_for_exit(policy_.grace_s);
  }
  const auto members = find_group(key_);
  for (const auto& member : members) outcome_.orphans_killed += member.pid != child_.pid;
  for (const auto& member : kill_group(key_, policy_.proof_s))
    outcome_.left.push_back(std::to_string(member.pid) + " " + member.name + " (state " +
                            member.state + ")");
  wait_for_exit(policy_.proof_s);
  if (exited()) ::waitpid(child_.pid, &wait_status_, 0);
  poll_once(0);
  while (out_.drain() + err_.drain() > 0) continue;
  if (floods()) cut_flood();
  if (results_ && ::fdatasync(results_.get()) != 0) throw_file_error(spec_.result, "sync", errno);
}

void Watch::judge() {
  outcome_.slow = clock_.slow();
  outcome_.libraries = identified(libraries_);  // now: hashing would disturb a measurement
  outcome_.lines = static_cast<int64_t>(reader_.lines().size());
  outcome_.half_line_bytes = static_cast<int64_t>(reader_.half_line_bytes());
  for (const auto* log : {&out_, &err_})
    if (log->truncated())
      outcome_.notes.push_back(std::string(log == &out_ ? "standard output" : "standard error") +
                               ": " + std::to_string(log->bytes()) + " bytes, cut at " +
                               std::to_string(policy_.log_cap));
  if (outcome_.orphans_killed > 0)
    outcome_.notes.push_back(std::to_string(outcome_.orphans_killed) +
                             " processes left behind were killed");
  judge_exit();
  if (outcome_.cause.empty() && !spec_.result.empty()) judge_channel();
  const bool no_room = outcome_.signal == "SIGXFSZ" || free_bytes(spec_.out) < (64 << 10);
  if (!outcome_.cause.empty() && outcome_.cause != "INTERRUPTED" && no_room)
    fail({"DISK_FULL", "no room in " + spec_.out.parent_path().string() +
                           "; it ended with: " + outcome_.reason});
  outcome_.status = outcome_.cause.empty() ? StepStatus::kCompleted : StepStatus::kFailed;
  if (outcome_.status == StepStatus::kCompleted) outcome_.last_beat = nullptr;
}

void Watch::judge_exit() {
  if (WIFEXITED(wait_status_)) outcome_.exit_code = WEXITSTATUS(wait_status_);
  if (WIFSIGNALED(wait_status_)) {
    outcome_.exit_code = -1;
    outcome_.signal = signal_name(WTERMSIG(wait_status_));
  }
  if (!outcome_.cause.empty()) return;
  // Without the protocol an exit status is a result, as of tests that fail.
  if (!outcome_.signal.empty() || !spec_.result.empty())
    fail(cause_of_exit(outcome_, spec_.err, last_progress_text()));
}

/// More evidence than a reader of it could hold.
bool Watch::floods() {
  if (bytes_heard_ <= policy_.result_cap) return false;
  fail({"GARBAGE",
        "wrote more than " + std::to_string(policy_.result_cap) + " bytes on the result channel"});
  return true;
}

/// Enough of it to see what it was; the rest would only fill the disk.
void Watch::cut_flood() {
  const uint64_t kept = std::min<uint64_t>(policy_.result_cap, 1 << 20);
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(spec_.result, error);
  std::filesystem::resize_file(spec_.result, kept, error);
  if (error) throw_file_error(spec_.result, "cut", error.value());
  outcome_.notes.push_back("result channel: " + std::to_string(bytes) + " bytes, cut at " +
                           std::to_string(kept));
}

void Watch::judge_channel() {
  if (!floods()) fail(cause_of_violations(reader_.finish()));
}

}  // namespace

GroupOutcome run_worker(const WorkerSpec& spec, const WatchPolicy& policy,
                        const WatchHooks& hooks) {
  try {
    return Watch(spec, policy, hooks).run();
  } catch (const NotStarted& e) {
    GroupOutcome outcome;
    outcome.group = spec.group;
    outcome.cause = "NOT_STARTED";
    outcome.reason = e.what();
    outcome.infrastructure = e.code() == EAGAIN || e.code() == ENOMEM;
    return outcome;
  }
}

}  // namespace harness
