// Attention on sequences whose tokens are divided among ranks, beside one device with the whole
// sequence: outputs and gradients, bytes beside the formula's, time; and what that predicts for
// longer sequences and more ranks. Rank 0 reports.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "nsa/api/attention_call.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/model/model_config.h"
#include "nsa/train/context/context_attention.h"
#include "nsa/train/context/context_cost.h"
#include "nsa/train/memory/tensor_memory.h"
#include "suites/phases/attention_under_test.h"
#include "suites/phases/correctness/context_rows.h"
#include "suites/phases/phase_ranks.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

namespace train = nsa::train;
using Clock = std::chrono::steady_clock;

constexpr double kBound = 1e-12;  ///< of the largest value; both sides are fp64
constexpr double kMib = 1 << 20;
constexpr int64_t kTimedCalls = 5;

/// Operations of a forward and a backward call of attention, by the keys that queries attend to.
double giga_flops(const nsa::NsaConfig& config, int64_t tokens, int64_t batch) {
  // A device of 1 TFLOP/s takes as many ms as the call has GFLOP.
  return train::context_times(config, {.sequence = tokens, .ranks = 1, .batch = batch},
                              {.attention_tflops = 1, .link_gb_per_s = 1})
      .attention_ms;
}

train::SelectedTransfer transfer_of(const std::string& name) {
  for (const auto transfer : {train::SelectedTransfer::kGather, train::SelectedTransfer::kFetch})
    if (train::to_string(transfer) == name) return transfer;
  throw ConfigError("args.transfers must name gather or fetch, got '" + name + "'");
}

class ContextParallel {
 public:
  explicit ContextParallel(const PhaseCase& one)
      : one_(one),
        batch_(one.args.get_int("B", 1, 1)),
        tokens_(one.args.get_int("S", 4096, 2)),
        equal_tokens_(one.args.get_int("equal_S", 1024, 0)),
        rows_(one.args.get_int("rows", 24, 0)),
        transfers_(one.args.get_list("transfers", {"gather", "fetch"})),
        fault_(one.args.get_text("fault", "")),
        config_(nsa::load_model_config(one.args.get_text("model", "m7c_125m"),
                                       nsa::model_config_folders())
                    .attention),
        ranks_(open_ranks(one, 2)) {
    static const std::vector<std::string> kFaults = {"", "other_inputs", "sent_twice", "slow_links",
                                                     "blocks_alone"};
    if (std::ranges::find(kFaults, fault_) == kFaults.end())
      throw ConfigError(
          "args.fault must be other_inputs, sent_twice, slow_links or blocks_alone, got '" +
          fault_ + "'");
    train::require_context_shards(config_, tokens_, world());
    if (equal_tokens_ > 0) train::require_context_shards(config_, equal_tokens_, world());
  }

  std::string run() {
    if (equal_tokens_ > 0) compare();
    measure();
    ranks_.group->leave();
    return "";
  }

 private:
  int64_t world() const { return ranks_.place.world; }
  bool reports() const { return ranks_.reports(); }

  void metric(const std::string& name, double value, const std::string& unit) const {
    if (reports())
      one_.emitter.metric({.case_id = one_.id, .name = name, .value = value, .unit = unit});
  }

  /// The same on every rank, but for the fault.
  nsa::NsaInputs draw(int64_t tokens, at::ScalarType type) const {
    at::manual_seed(one_.seed() + (fault_ == "other_inputs" && ranks_.place.rank == 1 ? 1 : 0));
    return nsa::random_inputs(config_, batch_, tokens, at::TensorOptions(one_.device).dtype(type));
  }

  static nsa::NsaInputs leaves(const nsa::NsaInputs& inputs) {
    return nsa::map_tokens(
        inputs, [](const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); });
  }

  /// In fp64 by the plain operators, on every rank.
  void compare() {
    const nsa::NsaInputs whole = draw(equal_tokens_, at::kDouble);
    nsa::NsaInputs one = leaves(whole);
    const nsa::NsaOutputs want = nsa::nsa_attention(one, config_);
    const at::Tensor d_o = at::randn_like(want.o);
    want.o.backward(d_o);
    for (const std::string& name : transfers_) {
      const auto transfer = transfer_of(name);
      train::ContextAttention attend(*ranks_.group, log_, config_, equal_tokens_, transfer);
      const auto here = [&](const at::Tensor& x) { return train::pieces_of(x, attend.shard()); };
      nsa::NsaInputs part = leaves(nsa::map_tokens(whole, here));
      const nsa::NsaOutputs got = attend(part);
      got.o.backward(here(d_o));
      const std::string by = train::to_string(transfer) + ".";
      judge(by + "o", got.o, here(want.o));
      judge(by + "d_q", part.q.grad(), here(one.q.grad()));
      judge(by + "d_k_cmp", part.k_cmp_src.grad(), here(one.k_cmp_src.grad()));
      judge(by + "d_v_cmp", part.v_cmp_src.grad(), here(one.v_cmp_src.grad()));
      judge(by + "d_k_sel", part.k_sel.grad(), here(one.k_sel.grad()));
      judge(by + "d_v_sel", part.v_sel.grad(), here(one.v_sel.grad()));
      judge(by + "d_k_win", part.k_win.grad(), here(one.k_win.grad()));
      judge(by + "d_v_win", part.v_win.grad(), here(one.v_win.grad()));
    }
  }

  /// A check of the largest difference on any rank, over the largest value.
  void judge(const std::string& name, const at::Tensor& got, const at::Tensor& want) {
    const double scale = std::max(1.0, want.abs().max().item<double>());
    const double here = (got - want).abs().max().item<double>() / scale;
    const at::Tensor beyond = at::zeros({1}, at::device(one_.device).dtype(at::kDouble));
    if (!(here <= kBound)) beyond.fill_(1);
    ranks_.group->sum(beyond);
    const auto differ = static_cast<int64_t>(beyond.item<double>());
    if (reports())
      one_.emitter.check({.case_id = one_.id,
                          .id = "equal/" + name,
                          .ok = differ == 0,
                          .code = differ == 0 ? "" : "SHARDING_DIFFERS",
                          .detail = std::to_string(differ) + " of " + std::to_string(world()) +
                                    " ranks differ by more than 1e-12 of the largest value"});
  }

  /// The shortest call in ms, the mean over the ranks; the first one warms up.
  double time_ms(const std::function<void()>& call) {
    double shortest = INFINITY;
    for (int64_t i = 0; i <= kTimedCalls; ++i) {
      ranks_.group->barrier();
      wait();
      const auto begin = Clock::now();
      call();
      wait();
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      if (i > 0) shortest = std::min(shortest, ms);
    }
    return ranks_.mean(shortest);
  }
  void wait() const { at::zeros({1}, at::TensorOptions(one_.device)).cpu(); }

  /// A forward and a backward call: ms, and what it holds at most beside its inputs.
  struct Cost {
    double ms = 0, mib = 0;
  };
  template <class Call>
  Cost cost_of(const Call& call) {
    train::reset_tensor_peak(one_.device);
    const double ms = time_ms(call);
    at::Tensor all = at::zeros({world()}, at::device(one_.device).dtype(at::kDouble));
    all[ranks_.place.rank] = train::tensor_peak_mib(one_.device);
    ranks_.group->sum(all);
    return {.ms = ms, .mib = all.max().item<double>()};
  }

  void measure() {
    train::watch_tensor_memory(one_.device, /*limit_mib=*/0);
    const at::ScalarType type = one_.device.is_cuda() ? at::kBFloat16 : at::kFloat;
    nsa::NsaInputs whole = draw(tokens_, type);
    // What a user's call runs: the kernels of the device.
    const nsa::NsaOptions options =
        nsa::whole_call_options(nsa::Backend::kAuto, /*strict=*/false, whole.q);
    train::ContextAttention attend(*ranks_.group, log_, config_, tokens_);
    const auto part = [&] {
      return leaves(nsa::map_tokens(
          whole, [&](const at::Tensor& x) { return train::pieces_of(x, attend.shard()); }));
    };
    if (rows_ > 0) report_rows(whole, part(), options);
    whole = leaves(whole);  // no other copy is there while memory is counted
    const double pieces_ms = time_pieces(whole, options);
    const Cost one =
        cost_of([&] { nsa::nsa_attention(whole, config_, options).o.sum().backward(); });
    nsa::NsaInputs here = part();
    whole = {};
    const Cost divided = cost_of([&] {
      attend(here, options).o.sum().backward();
      if (fault_ == "slow_links") std::this_thread::sleep_for(std::chrono::milliseconds(300));
    });
    metric("time.one_ms", one.ms, "ms");
    metric("time.divided_ms", divided.ms, "ms");
    metric("time.linear_pct", 100 * one.ms / divided.ms / static_cast<double>(world()), "pct");
    metric("memory.one_mib", one.mib, "mib");
    metric("memory.divided_mib", divided.mib, "mib");
    const double bytes = report_bytes(attend, static_cast<int64_t>(c10::elementSize(type)));
    const double link_gb_s = time_link(here.k_sel);
    report_time(pieces_ms, bytes / (link_gb_s * 1e6), divided.ms);
    report_parts(attend, here, pieces_ms);
    predict(giga_flops(config_, tokens_, batch_) / pieces_ms, link_gb_s,
            static_cast<int64_t>(c10::elementSize(type)));
  }

  /// Checks of the oracle on rows of every rank, as this device's kernels computed them.
  void report_rows(const nsa::NsaInputs& whole, const nsa::NsaInputs& here,
                   const nsa::NsaOptions& options) {
    const at::NoGradGuard no_grad;
    // One of its own: what a call receives is counted with its backward pass.
    train::ContextAttention attend(*ranks_.group, log_, config_, tokens_);
    Checks checks = judge_context_rows(
        {config_, whole, attend(here, options), attend.shard(), rows_, one_.seed()}, options);
    if (fault_ == "blocks_alone") checks.resize(1);
    for (Check& check : checks) {
      const at::Tensor off = at::zeros({1}, at::device(one_.device).dtype(at::kDouble));
      if (!check.ok) off.fill_(1);
      ranks_.group->sum(off);
      const auto count = static_cast<int64_t>(off.item<double>());
      check.ok = count == 0;
      check.code = count == 0 ? "" : code::kOracleMismatch;
      check.detail += "; rows of " + std::to_string(count) + " of " + std::to_string(world()) +
                      " ranks are off";
    }
    if (reports()) emit_checks(one_, checks);
  }

  /// The whole call by one device in two pieces, as a rank has them: what pieces cost beside links.
  double time_pieces(const nsa::NsaInputs& whole, const nsa::NsaOptions& options) {
    const auto alone =
        ranks_.group->subgroup("rank" + std::to_string(ranks_.place.rank), {ranks_.place.rank});
    train::CollectiveLog log;
    train::ContextAttention attend(*alone, log, config_, tokens_);
    const double ms = time_ms([&] { attend(whole, options).o.sum().backward(); });
    alone->leave();
    return ms;
  }

  /// Time by formula: work as pieces have it, evenly over the ranks, and all bytes; nothing
  /// overlaps.
  void report_time(double pieces_ms, double link_ms, double divided_ms) const {
    const double balance =
        train::work_balance(config_, tokens_, world(), train::ContextLayout::kZigzag);
    const double predicted = pieces_ms / static_cast<double>(world()) / balance + link_ms;
    metric("time.pieces_ms", pieces_ms, "ms");
    metric("time.predicted_ms", predicted, "ms");
    metric("time.unpredicted_ratio", divided_ms / predicted, "ratio");
  }

  /// What moving x and its gradient takes.
  template <class Move>
  double time_moving(const at::Tensor& x, const Move& move) {
    const at::Tensor leaf = x.detach().clone().set_requires_grad(true);
    return time_ms([&] { move(leaf).sum().backward(); });
  }

  /// MiB of a call that a rank received under names that begin so.
  static double mib_of(const train::ContextAttention& attend, const std::string& part) {
    double bytes = 0;
    for (const auto& [name, received] : attend.received())
      if (name.starts_with(part)) bytes += static_cast<double>(received);
    return bytes / kMib / static_cast<double>(attend.calls());
  }

  /// Each part of a call by itself; they need not add up, as nothing of one waits for another.
  void report_parts(const train::ContextAttention& attend, const nsa::NsaInputs& here,
                    double pieces_ms) {
    train::ContextExchange exchange(*ranks_.group, log_);
    const auto gathered = [&](const at::Tensor& x) { return exchange.gather_tokens(x, "part"); };
    const auto bordered = [&](int64_t rows) {
      return [&exchange, rows](const at::Tensor& x) {
        return exchange.with_previous(x, rows, "part");
      };
    };
    const int64_t blocks = here.k_sel.size(1) / config_.block_stride;
    const double selected = time_moving(here.k_sel, gathered) + time_moving(here.v_sel, gathered);
    const double compressed = time_moving(here.k_cmp_src.narrow(1, 0, blocks), gathered) +
                              time_moving(here.v_cmp_src.narrow(1, 0, blocks), gathered);
    const double window = time_moving(here.k_win, bordered(config_.window - 1)) +
                          time_moving(here.v_win, bordered(config_.window - 1));
    if (!reports()) return;
    one_.emitter.table(
        {.case_id = one_.id,
         .id = "parts",
         .title = "Parts of a forward and a backward call, each timed by itself",
         .columns = {"part", "received by a rank, MiB", "ms"},
         .rows = {
             {"attention of a rank's pieces", 0, pieces_ms / static_cast<double>(world())},
             {"keys and values of selected blocks, and gradients", mib_of(attend, "selected"),
              selected},
             {"compressed keys and values, and gradients", mib_of(attend, "compress"), compressed},
             {"tokens before the pieces, and gradients", mib_of(attend, "window"), window}}});
  }

  /// Returns the bytes of the formula.
  double report_bytes(const train::ContextAttention& attend, int64_t value_bytes) {
    double here = 0;
    for (const auto& [part, bytes] : attend.received())
      if (!part.ends_with("ids") && !part.ends_with("counts")) here += static_cast<double>(bytes);
    if (fault_ == "sent_twice") here *= 2;
    const at::Tensor all = at::zeros({world()}, at::device(one_.device).dtype(at::kDouble));
    all[ranks_.place.rank] = here / static_cast<double>(attend.calls());
    ranks_.group->sum(all);
    const double most = all.max().item<double>();
    const double predicted =
        train::context_bytes(
            config_,
            {.sequence = tokens_, .ranks = world(), .batch = batch_, .value_bytes = value_bytes})
            .total();
    metric("bytes.received_mib", most / kMib, "mib");
    metric("bytes.predicted_mib", predicted / kMib, "mib");
    metric("bytes.unpredicted_ratio", most / predicted, "ratio");
    return predicted;
  }

  /// GB/s that a rank receives in a gather of its keys `here`.
  double time_link(const at::Tensor& keys) {
    train::ContextExchange exchange(*ranks_.group, log_);
    const at::Tensor here = keys.detach().contiguous();
    const double ms = time_ms([&] { exchange.gather(here, "rate"); });
    const double rate =
        static_cast<double>((world() - 1) * static_cast<int64_t>(here.nbytes())) / (ms * 1e6);
    metric("rates.link_gb_s", rate, "gb_s");
    return rate;
  }

  void predict(double tflops, double link_gb_s, int64_t value_bytes) {
    nlohmann::json rows = nlohmann::json::array();
    for (int64_t tokens = 65536; tokens <= (1 << 20); tokens *= 2)
      for (int64_t ranks = 2; ranks <= 64; ranks *= 2) {
        const train::ContextCall call{tokens, ranks, batch_, value_bytes};
        const auto times = train::context_times(
            config_, call, {.attention_tflops = tflops, .link_gb_per_s = link_gb_s});
        rows.push_back({tokens, ranks, train::context_bytes(config_, call).total() / kMib,
                        times.attention_ms, times.communication_ms, times.limit()});
      }
    metric("model.points_count", static_cast<double>(rows.size()), "count");
    if (reports())
      one_.emitter.table({.case_id = one_.id,
                          .id = "prediction",
                          .title = "A layer of attention, forward and backward, by the rates "
                                   "measured here; nothing overlaps",
                          .columns = {"tokens", "ranks", "received by a rank, MiB", "attention, ms",
                                      "communication, ms", "longer"},
                          .rows = rows});
  }

  const PhaseCase& one_;
  int64_t batch_, tokens_, equal_tokens_, rows_;
  std::vector<std::string> transfers_;
  std::string fault_;
  nsa::NsaConfig config_;
  PhaseRanks ranks_;
  train::CollectiveLog log_;
};

}  // namespace

std::string run_context_parallel(const PhaseCase& one) { return ContextParallel(one).run(); }

}  // namespace suites
