#include "harness/trace/trace_file.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json/depth.h"
#include "harness/schema/error.h"
#include "harness/trace/gzip.h"

namespace harness::trace {
namespace {

using nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr int64_t kLargest = int64_t{1} << 53;  // exact in every JSON reader
constexpr size_t kMostBytes = size_t{4} << 30;

/// Reads the fields of one line; every refusal names field, value and place.
class Line {
 public:
  Line(const json& fields, size_t offset, const std::string& name)
      : fields_(fields), offset_(offset), name_(name) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(name_ + " at byte " + std::to_string(offset_) + ": " + what);
  }

  void want_fields(size_t count) const {
    if (fields_.size() != count)
      refuse("record " + fields_[0].dump() + " must have " + std::to_string(count) +
             " fields, got " + std::to_string(fields_.size()));
  }

  /// A number from 0 to 2^53, or to `below` - 1.
  int64_t number(size_t field, const char* what, int64_t below = kLargest) const {
    const json& value = fields_[field];
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= below)
      refuse(std::string(what) + " must be an integer from 0 to " + std::to_string(below - 1) +
             ", got " + value.dump(-1, ' ', false, json::error_handler_t::replace));
    return value.get<int64_t>();
  }

  Interval time() const {
    const Interval time{number(1, "begin"), number(2, "end")};
    if (time.end < time.begin)
      refuse("end must be >= begin " + std::to_string(time.begin) + ", got " +
             std::to_string(time.end));
    return time;
  }

 private:
  const json& fields_;
  size_t offset_;
  const std::string& name_;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Trace read() {
    for (size_t at = 0; at < bytes_.size();) {
      size_t end = bytes_.find('\n', at);
      if (end == std::string_view::npos) refuse(at, "the last line has no end: the file is cut");
      take(bytes_.substr(at, end - at), at);
      at = end + 1;
    }
    if (!ended_) refuse(bytes_.size(), "the line [\"end\",N] is missing: the file is cut");
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(size_t offset, const std::string& what) const {
    throw Error(name_ + " at byte " + std::to_string(offset) + ": " + what);
  }

  void take(std::string_view text, size_t offset) {
    if (ended_) refuse(offset, "nothing may stand behind [\"end\",N]");
    if (base::nests_too_deep(text)) refuse(offset, "nests too deep to be a record");
    const json fields = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (lines_ == 0) {
      read_header(fields, offset);
    } else {
      if (!fields.is_array() || fields.empty() || !fields[0].is_string())
        refuse(offset, "a record must be a list that begins with its kind");
      read_record(fields[0].get_ref<const std::string&>(), fields, Line(fields, offset, name_));
    }
    ++lines_;
  }

  void read_header(const json& header, size_t offset) {
    if (!header.is_object() || header.value("format", json()) != "nsa-trace")
      refuse(offset, "the first line must have \"format\":\"nsa-trace\"");
    if (header.value("version", json()) != kVersion)
      refuse(offset, "version must be " + std::to_string(kVersion) + ", got " +
                         header.value("version", json()).dump());
    if (!header.value("device", json()).is_string()) refuse(offset, "device must be a text");
    trace_.device = header["device"].get<std::string>();
    const auto count = [&](const char* key) {
      const json value = header.value(key, json());
      if (!value.is_number_unsigned()) refuse(offset, std::string(key) + " must be a count");
      return value.get<int64_t>();
    };
    trace_.dropped = count("dropped");
    trace_.open_ranges = count("open_ranges");
    trace_.foreign_times = count("foreign_times");
    if (header.size() != 6) refuse(offset, "the first line must have 6 fields");
  }

  void read_record(const std::string& kind, const json& fields, const Line& line) {
    if (kind == "n") return read_name(fields, line);
    if (kind == "k") return read_work(WorkKind::kKernel, line);
    if (kind == "c") return read_work(WorkKind::kCopy, line);
    if (kind == "s") return read_work(WorkKind::kSet, line);
    if (kind == "a") return read_call(line);
    if (kind == "r") return read_range(line);
    if (kind == "w") {
      line.want_fields(3);
      trace_.waits.push_back({line.number(1, "at"), line.number(2, "stream")});
      return;
    }
    if (kind == "g") return read_graph_range(line);
    if (kind == "m") return read_graph_node(line);
    if (kind != "end") line.refuse("kind must be n, k, c, s, a, r, w, g, m or end, got " + kind);
    line.want_fields(2);
    if (line.number(1, "lines") != lines_)
      line.refuse("lines must be " + std::to_string(lines_) + ", got " + fields[1].dump());
    ended_ = true;
  }

  void read_name(const json& fields, const Line& line) {
    line.want_fields(2);
    if (!fields[1].is_string()) line.refuse("a name must be a text, got " + fields[1].dump());
    trace_.names.push_back(fields[1].get<std::string>());
  }

  int64_t name_at(const Line& line, size_t field) const {
    if (trace_.names.empty()) line.refuse("a name must stand in front of the lines that use it");
    return line.number(field, "name", static_cast<int64_t>(trace_.names.size()));
  }

  void read_work(WorkKind kind, const Line& line) {
    const bool moves = kind != WorkKind::kKernel;
    line.want_fields(moves ? 9 : 8);
    trace_.work.push_back({.kind = kind,
                           .time = line.time(),
                           .device = line.number(3, "device"),
                           .stream = line.number(4, "stream"),
                           .correlation = line.number(5, "correlation"),
                           .name = name_at(line, 6),
                           .bytes = moves ? line.number(8, "bytes") : 0,
                           .graph_node = line.number(7, "graph_node")});
  }

  void read_call(const Line& line) {
    line.want_fields(7);
    const int64_t kinds = static_cast<int64_t>(CallKind::kOther) + 1;
    trace_.calls.push_back({.kind = static_cast<CallKind>(line.number(6, "kind", kinds)),
                            .time = line.time(),
                            .thread = line.number(3, "thread"),
                            .correlation = line.number(4, "correlation"),
                            .name = name_at(line, 5)});
  }

  void read_range(const Line& line) {
    line.want_fields(5);
    trace_.ranges.push_back(
        {.time = line.time(), .thread = line.number(3, "thread"), .name = name_at(line, 4)});
  }

  /// The ranges of captures that stand in front of this line, and 0 for none.
  int64_t graph_range_at(const Line& line, size_t field, const char* what) const {
    return line.number(field, what, static_cast<int64_t>(trace_.graph_ranges.size()) + 1) - 1;
  }

  void read_graph_range(const Line& line) {
    line.want_fields(3);
    trace_.graph_ranges.push_back(
        {.name = name_at(line, 1), .parent = graph_range_at(line, 2, "parent")});
  }

  void read_graph_node(const Line& line) {
    line.want_fields(3);
    trace_.graph_nodes.push_back(
        {.node = line.number(1, "node"), .range = graph_range_at(line, 2, "range")});
  }

  std::string_view bytes_;
  const std::string& name_;
  Trace trace_;
  int64_t lines_ = 0;
  bool ended_ = false;
};

/// Writes a record of numbers.
class Writer {
 public:
  explicit Writer(std::ostream& out) : out_(out) {}

  void text(const json& value) {
    out_ << value.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
    ++lines_;
  }

  void record(char kind, std::initializer_list<int64_t> numbers) {
    out_ << "[\"" << kind << '"';
    for (const int64_t number : numbers) out_ << ',' << number;
    out_ << "]\n";
    ++lines_;
  }

  int64_t lines() const { return lines_; }

 private:
  std::ostream& out_;
  int64_t lines_ = 0;
};

void write_work(Writer& out, const DeviceWork& one) {
  const auto& [kind, time, device, stream, correlation, name, bytes, node] = one;
  if (kind == WorkKind::kKernel)
    out.record('k', {time.begin, time.end, device, stream, correlation, name, node});
  else
    out.record(kind == WorkKind::kCopy ? 'c' : 's',
               {time.begin, time.end, device, stream, correlation, name, node, bytes});
}

}  // namespace

void write_trace(std::ostream& stream, const Trace& trace) {
  Writer out(stream);
  out.text({{"format", "nsa-trace"},
            {"version", kVersion},
            {"device", trace.device},
            {"dropped", trace.dropped},
            {"open_ranges", trace.open_ranges},
            {"foreign_times", trace.foreign_times}});
  for (const std::string& name : trace.names) out.text(json::array({"n", name}));
  for (const DeviceWork& one : trace.work) write_work(out, one);
  for (const HostCall& one : trace.calls)
    out.record('a', {one.time.begin, one.time.end, one.thread, one.correlation, one.name,
                     static_cast<int64_t>(one.kind)});
  for (const HostRange& one : trace.ranges)
    out.record('r', {one.time.begin, one.time.end, one.thread, one.name});
  for (const EventWait& one : trace.waits) out.record('w', {one.at, one.stream});
  for (const GraphRange& one : trace.graph_ranges) out.record('g', {one.name, one.parent + 1});
  for (const GraphNode& one : trace.graph_nodes) out.record('m', {one.node, one.range + 1});
  out.text(json::array({"end", out.lines()}));
}

Trace read_trace(std::string_view bytes, const std::string& name) {
  return Reader(bytes, name).read();
}

Trace read_trace_file(const std::filesystem::path& file) {
  return read_trace(read_maybe_gzip(file, kMostBytes), file.filename().string());
}

void write_trace_file(const std::filesystem::path& file, const Trace& trace) {
  std::ostringstream text;
  write_trace(text, trace);
  write_text(file, text.view());
}

}  // namespace harness::trace
