#include "nsa/train/record/result_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

/// Marks of the first steps are all written; later ones only when nothing was said for this long.
constexpr int64_t kEagerSteps = 3;
constexpr double kQuietSeconds = 0.5;

nlohmann::json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

ResultLines::ResultLines(int descriptor) : descriptor_(descriptor) {
  if (fcntl(descriptor, F_GETFD) < 0)
    throw InputError("descriptor " + std::to_string(descriptor) +
                     " is not open: start with `3>FILE`, or use --result FILE");
}

ResultLines::ResultLines(const std::filesystem::path& path)
    : descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)),
      owned_(true) {
  if (descriptor_ < 0)
    throw InputError("cannot write --result " + path.string() + ": " + std::strerror(errno));
}

ResultLines::~ResultLines() {
  if (owned_) close(descriptor_);
}

double ResultLines::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ResultLines::emit(const std::string& type, nlohmann::json fields) {
  if (descriptor_ < 0) return;
  const std::lock_guard lock(mutex_);
  last_line_s_ = seconds();
  fields["type"] = type;
  fields["t"] = last_line_s_;
  const std::string line =
      fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  for (size_t begin = 0; begin < line.size();) {
    const ssize_t written = write(descriptor_, line.data() + begin, line.size() - begin);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw std::runtime_error(std::string("cannot write a result line: ") + std::strerror(errno) +
                               "; make room where the results go, then run again");
    begin += static_cast<size_t>(written);
  }
  ++num_lines_;
}

void ResultLines::hello(const std::string& build_id, const std::string& device,
                        const RankPlace& place, const nlohmann::json& versions,
                        const nlohmann::json& switches) {
  start_ = std::chrono::steady_clock::now();
  emit("hello", {{"v", 1},
                 {"program", "nsa-train"},
                 {"build_id", build_id},
                 {"pid", getpid()},
                 {"rank", place.rank},
                 {"world", place.world},
                 {"device", device},
                 {"versions", versions},
                 {"switches", switches}});
}

void ResultLines::mark(const std::string& case_id, int64_t step, int64_t of,
                       const std::string& at) {
  if (step > kEagerSteps && seconds() - last_line_s_ < kQuietSeconds) return;
  emit("beat", {{"case", case_id}, {"step", step}, {"of", of}, {"at", at}});
}

void ResultLines::beat(const std::string& case_id, const StepRecord& r, int64_t of) {
  nlohmann::json extra = {{"grad_norm", finite_or_null(r.grad_norm)},
                          {"lr", r.lr},
                          {"load_ms", r.load_ms},
                          {"forward_ms", finite_or_null(r.forward_ms)},
                          {"backward_ms", finite_or_null(r.backward_ms)},
                          {"optimizer_ms", finite_or_null(r.optimizer_ms)},
                          {"collective_ms", r.collective_ms},
                          {"step_ms", r.step_ms}};
  if (r.has_targets()) extra["loss"] = finite_or_null(r.loss);
  if (r.targets >= 0) extra["targets"] = r.targets;
  if (r.validation_loss) extra["validation_loss"] = finite_or_null(*r.validation_loss);
  if (r.gate.known())
    extra.update({{"gate_cmp", finite_or_null(r.gate.cmp)},
                  {"gate_sel", finite_or_null(r.gate.sel)},
                  {"gate_win", finite_or_null(r.gate.win)},
                  {"gate_entropy_nat", finite_or_null(r.gate.entropy)}});
  emit("beat", {{"case", case_id},
                {"step", r.step},
                {"of", of},
                {"at", "step"},
                {"rate", finite_or_null(r.tok_s)},
                {"rate_unit", "tok_s"},
                {"mem_mib", r.mem_mib},
                {"extra", std::move(extra)}});
}

void ResultLines::sample(const std::string& case_id, const std::string& series, double value,
                         const std::string& unit, int64_t order) {
  if (!std::isfinite(value)) throw std::runtime_error("sample " + series + " is not finite");
  emit("sample", {{"case", case_id},
                  {"series", series},
                  {"value", value},
                  {"unit", unit},
                  {"round", 0},
                  {"order", order},
                  {"clock_mhz", nullptr}});
}

void ResultLines::metric(const std::string& case_id, const Figure& figure) {
  nlohmann::json value = nullptr;
  std::string reason = figure.reason;
  if (figure.value && std::isfinite(*figure.value)) {
    value =
        figure.unit == "bool" ? nlohmann::json(*figure.value != 0) : nlohmann::json(*figure.value);
  } else if (figure.value) {
    reason = "the figure is not finite";
  }
  nlohmann::json line = {
      {"case", case_id}, {"name", figure.name}, {"value", value}, {"unit", figure.unit}};
  if (value.is_null()) line["reason"] = reason;
  emit("metric", std::move(line));
}

void ResultLines::check(const std::string& case_id, const Check& c) {
  emit("check", {{"case", case_id},
                 {"id", c.id},
                 {"ok", c.ok},
                 {"code", c.code},
                 {"detail", c.detail},
                 {"err", finite_or_null(c.error)},
                 {"tol", finite_or_null(c.tolerance)}});
}

void ResultLines::table(const std::string& case_id, const std::string& id, const std::string& title,
                        const std::vector<std::string>& columns, const nlohmann::json& rows) {
  emit("table",
       {{"case", case_id}, {"id", id}, {"title", title}, {"columns", columns}, {"rows", rows}});
}

void ResultLines::finding(const Finding& f) {
  emit("finding", {{"code", f.code},
                   {"symptom", f.symptom},
                   {"fact", f.fact},
                   {"cause", f.cause},
                   {"action", f.action},
                   {"priority", "immediate"}});
}

void ResultLines::case_end(const std::string& case_id, const std::string& failure) {
  emit("case",
       {{"case", case_id}, {"status", failure.empty() ? "ok" : "failed"}, {"reason", failure}});
}

void ResultLines::done() { emit("done", {{"lines", num_lines_}}); }

}  // namespace nsa::train
