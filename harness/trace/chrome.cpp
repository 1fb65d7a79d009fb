#include "harness/trace/chrome.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>

#include "harness/schema/error.h"
#include "harness/trace/analysis/attribution.h"
#include "harness/trace/gzip.h"

namespace harness::trace {
namespace {

constexpr int kHost = 1, kDevice = 2;  // process ids of the two groups of tracks

/// Whole microseconds with three decimals: a double would lose nanoseconds in a long trace.
std::string microseconds(Ns ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return text;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class ChromeWriter {
 public:
  ChromeWriter(std::ostream& out, const Trace& trace, std::string_view step_name, int64_t most)
      : out_(out), trace_(trace), found_(attribute(trace, step_name)) {
    if (found_.steps.empty() || most < 1)
      throw Error("a Chrome trace needs at least one step '" + std::string(step_name) + "'");
    const size_t last = std::min(found_.steps.size(), static_cast<size_t>(most)) - 1;
    window_ = {time_of(found_.steps.front()).begin, time_of(found_.steps[last]).end};
  }

  void write() {
    out_ << "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"device\":" << quoted(trace_.device)
         << "},\"traceEvents\":[\n";
    name_tracks();
    for (const HostRange& range : trace_.ranges)
      if (inside(range.time)) slice(kHost, range.thread, range.time, range.name, "range");
    for (const HostCall& call : trace_.calls)
      if (inside(call.time)) slice(kHost, call.thread, call.time, call.name, "call");
    write_streams();
    out_ << "\n]}\n";
  }

 private:
  Interval time_of(int64_t range) const { return trace_.ranges[static_cast<size_t>(range)].time; }
  bool inside(Interval time) const {
    return time.begin >= window_.begin && time.end <= window_.end;
  }

  void event(const std::string& fields) {
    if (!first_) out_ << ",\n";
    first_ = false;
    out_ << '{' << fields << '}';
  }

  static std::string place(int process, int64_t track) {
    return ",\"pid\":" + std::to_string(process) + ",\"tid\":" + std::to_string(track);
  }

  void name(const char* what, int process, int64_t track, const std::string& text) {
    event(std::string("\"ph\":\"M\",\"name\":\"") + what + "\"" + place(process, track) +
          ",\"args\":{\"name\":" + quoted(text) + "}");
  }

  void name_tracks() {
    name("process_name", kHost, 0, "host");
    name("process_name", kDevice, 0, trace_.device.empty() ? "device" : trace_.device);
    if (found_.main_thread != kNone)
      name("thread_name", kHost, found_.main_thread, "thread of the steps");
  }

  void slice(int process, int64_t track, Interval time, int64_t text, const char* category) {
    event("\"ph\":\"X\",\"cat\":\"" + std::string(category) +
          "\",\"name\":" + quoted(trace_.name_of(text)) + place(process, track) + ",\"ts\":" +
          microseconds(time.begin - window_.begin) + ",\"dur\":" + microseconds(time.length()));
  }

  /// A row of a stream that is free at `begin`; the first one is the stream itself.
  int64_t row_of(int64_t stream, Interval time) {
    std::vector<Ns>& ends = rows_[stream];
    size_t row = 0;
    while (row < ends.size() && ends[row] > time.begin) ++row;
    if (row == ends.size()) {
      ends.push_back(0);
      const std::string suffix =
          row == 0
              ? ""
              : " (" + std::string(1, static_cast<char>('a' + std::min<size_t>(row, 25))) + ")";
      name("thread_name", kDevice, track(stream, row), "stream " + std::to_string(stream) + suffix);
    }
    ends[row] = time.end;
    return track(stream, row);
  }

  static int64_t track(int64_t stream, size_t row) {
    return stream * 100 + static_cast<int64_t>(row);
  }

  void write_streams() {
    std::vector<size_t> order;
    for (size_t i = 0; i < trace_.work.size(); ++i)
      if (inside(trace_.work[i].time)) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return trace_.work[a].time.begin < trace_.work[b].time.begin;
    });
    for (const size_t index : order) {
      const DeviceWork& work = trace_.work[index];
      const int64_t row = row_of(work.stream, work.time);
      slice(kDevice, row, work.time, work.name, "work");
      arrow(found_.call_of_work[index], row, work.time.begin, index);
    }
  }

  void arrow(int64_t call, int64_t row, Ns begin, size_t id) {
    if (call == kNone) return;
    const HostCall& from = trace_.calls[static_cast<size_t>(call)];
    if (!inside(from.time)) return;
    const std::string common =
        "\"cat\":\"launch\",\"name\":\"launch\",\"id\":" + std::to_string(id);
    event("\"ph\":\"s\"," + common + place(kHost, from.thread) +
          ",\"ts\":" + microseconds(from.time.begin - window_.begin));
    event("\"ph\":\"f\",\"bp\":\"e\"," + common + place(kDevice, row) +
          ",\"ts\":" + microseconds(begin - window_.begin));
  }

  std::ostream& out_;
  const Trace& trace_;
  const Attribution found_;
  Interval window_;
  std::map<int64_t, std::vector<Ns>> rows_;
  bool first_ = true;
};

}  // namespace

void write_chrome(std::ostream& out, const Trace& trace, std::string_view step_name,
                  int64_t most_steps) {
  ChromeWriter(out, trace, step_name, most_steps).write();
}

void write_chrome_file(const std::filesystem::path& file, const Trace& trace,
                       std::string_view step_name, int64_t most_steps) {
  std::ostringstream text;
  write_chrome(text, trace, step_name, most_steps);
  write_text(file, text.view());
}

}  // namespace harness::trace
