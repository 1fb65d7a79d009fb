#include "suites/bench/users/users_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "nsa/diagnostics/run_record.h"
#include "nsa/nsa.h"
#include "suites/bench/sampled_time.h"
#include "suites/bench/targets/case_row.h"
#include "suites/bench/users/user_call.h"
#include "suites/conformance/checks/operator_checks.h"
#include "suites/conformance/convert.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/correctness/row_judge.h"

namespace suites {
namespace {

/// What a case of packed documents is compared with.
constexpr const char* kLayouts[] = {"padded", "one_document", "even", "with_max_seqlen"};

using at::Tensor;
using nlohmann::json;

constexpr int64_t kUserGradientTokens = 200;
constexpr double kUserSlowMs = 2000;  ///< a pass that takes longer has one sample

/// q, K, V, gates, [B, S, heads, dim], of which all branches take the same K and V.
DenseInputs shared_inputs(const CaseConfig& config, at::Device device, uint64_t seed) {
  DenseInputs in = draw_inputs(config, at::kBFloat16, device, seed);
  in.k_cmp_src = in.k_win = in.k_sel;
  in.v_cmp_src = in.v_win = in.v_sel;
  return in;
}

std::vector<Tensor> leaves_from(const DenseInputs& in) {
  return {in.q, in.k_sel, in.v_sel, in.gate};
}

/// Rows `positions` of the document that begins at token `begin` and at block `block` of a packed
/// output.
CandidateRows document_rows(const nsa::NsaOutputs& out, int64_t begin, int64_t block,
                            const CaseConfig& document, const std::vector<int64_t>& positions) {
  const Tensor index = (at::tensor(positions, at::kLong) + begin).to(out.o.device());
  const auto rows = [&](const Tensor& x) { return x.index_select(0, index).unsqueeze(0); };
  return {rows(out.q_rot),     out.k_cmp.narrow(0, block, document.num_compressed()).unsqueeze(0),
          rows(out.block_idx), rows(out.o_cmp),
          rows(out.o_sel),     rows(out.o_win),
          rows(out.o)};
}

class UserBench {
 public:
  UserBench(const UserCase& one, at::Device device, const TargetBenchOptions& options, json& row)
      : one_(one), device_(device), options_(options), row_(row) {}

  void run() {
    judge_operator_gradients();
    const DenseInputs in = shared_inputs(one_.config, device_, options_.seed);
    note_backend(in);
    const bool packed = !one_.documents.empty();
    const UserCall call =
        packed ? packed_call(in, one_.documents) : UserCall(to_nsa(one_.config), leaves_from(in));
    judge(call, in);
    if (!row_["problems"].empty()) return;
    row_.update(times(call));
    if (packed) time_other_layouts(in);
  }

 private:
  void judge_operator_gradients() {
    CaseConfig small = one_.config;  // every KV head does the same: one is judged
    small.batch = one_.documents.empty() ? 1 : 2;
    small.num_heads = small.group_size();
    small.num_kv_heads = 1;
    small.tokens = std::min(small.tokens, kUserGradientTokens);
    note_checks(check_gradients(operator_candidate(!one_.documents.empty()), {.config = small,
                                                                              .type = at::kBFloat16,
                                                                              .device = device_,
                                                                              .seed = options_.seed,
                                                                              .name = one_.id}),
                row_);
  }

  void note_backend(const DenseInputs& in) {
    const nsa::NsaConfig config = to_nsa(one_.config);
    row_["backend"] = nsa::which_backend(in.q, in.k_sel, in.v_sel, in.gate, config);
    row_["reason"] = nsa::why_not_fused(in.q, in.k_sel, in.v_sel, in.gate, config);
  }

  UserCall packed_call(const DenseInputs& in, const std::vector<int64_t>& documents,
                       std::optional<int64_t> max_seqlen = {}) const {
    std::vector<int64_t> offsets{0};
    for (const int64_t tokens : documents) offsets.push_back(offsets.back() + tokens);
    TORCH_CHECK(offsets.back() == one_.config.tokens && one_.config.batch == 1, "documents of ",
                one_.id, " must have the case's tokens");
    std::vector<Tensor> tensors;
    for (const Tensor& x : leaves_from(in)) tensors.push_back(x[0]);
    return {to_nsa(one_.config), tensors, at::tensor(offsets, at::kInt).to(device_), max_seqlen};
  }

  void judge(const UserCall& call, const DenseInputs& in) {
    const at::NoGradGuard no_grad;
    nsa::NsaOutputs out = call.layer();
    const auto record = c10::make_intrusive<nsa::RunRecord>();
    const Tensor o = [&] {
      const nsa::RunRecordScope scope(record);
      return call.forward();
    }();
    for (const nsa::RanBackend& ran : record->rows())
      if (ran.count > 0) row_["ran"][ran.stage] = ran.backend;
    // The operator computes packed documents at once where it can, the layer in batches: its own
    // output is judged below, the selected blocks of both are the same.
    const bool at_once = row_["ran"].value("packed", "") == "fused";
    if (!at_once && !at::equal(o, out.o))
      row_["problems"].push_back("operator and layer call gave different bits");
    out.o = o;
    if (one_.documents.empty()) return judge_rows(one_.config, in, out);
    int64_t begin = 0, block = 0;
    for (const int64_t tokens : one_.documents) {
      CaseConfig document = one_.config;
      document.tokens = tokens;
      judge_document(document, narrow_tokens(in, begin, tokens), out, begin, block);
      begin += tokens;
      block += document.num_compressed();
    }
  }

  void judge_rows(const CaseConfig& config, const DenseInputs& in, const nsa::NsaOutputs& out) {
    const auto positions = judged_positions(config, options_.judged_rows, options_.seed);
    judge_at(config, in, positions, rows_of(out, positions));
  }

  void judge_document(const CaseConfig& document, const DenseInputs& in, const nsa::NsaOutputs& out,
                      int64_t begin, int64_t block) {
    const auto share = static_cast<int64_t>(one_.documents.size());
    const auto positions = judged_positions(
        document, std::max<int64_t>(options_.judged_rows / share, 4), options_.seed);
    judge_at(document, in, positions, document_rows(out, begin, block, document, positions));
  }

  void judge_at(const CaseConfig& config, const DenseInputs& in,
                const std::vector<int64_t>& positions, const CandidateRows& rows) {
    RowJudge judge(config, queries_at(in, positions), positions);
    note_checks(judge.judge(rows, one_.id), row_);
    note_selection(judge.selection(), row_);
  }

  json times(const UserCall& call) const {
    const Tensor o = call.forward();
    const Tensor d_o = at::randn_like(o);
    return {{"forward", {{"hot", sampled([&] { call.forward(); })}}},
            {"backward", {{"hot", sampled([&] { call.backward(o, d_o); })}}}};
  }

  json sampled(const std::function<void()>& work) const {
    EventTimer timer(device_);
    const double once = time_calls_ms(timer, work, 1);
    if (once > kUserSlowMs) return time_json({once});
    return time_json(sample_time(device_, work, options_.seconds, {}).hot);
  }

  /// As many documents of equal lengths as can be.
  std::vector<int64_t> even_documents() const {
    const auto count = static_cast<int64_t>(one_.documents.size());
    std::vector<int64_t> even(one_.documents.size(), one_.config.tokens / count);
    for (int64_t i = 0; i < one_.config.tokens % count; ++i) ++even[static_cast<size_t>(i)];
    return even;
  }

  /// The same documents padded to the longest, as many of equal lengths, one document of all
  /// tokens, and the packed call with a bound on the lengths, so that the host reads nothing.
  void time_other_layouts(const DenseInputs& in) {
    const nsa::NsaConfig config = to_nsa(one_.config);
    row_["with_max_seqlen"] =
        times(packed_call(in, one_.documents, *std::ranges::max_element(one_.documents)));
    row_["even"] = times(packed_call(in, even_documents()));
    row_["one_document"] = times(UserCall(config, leaves_from(in)));
    CaseConfig padded = one_.config;
    padded.batch = static_cast<int64_t>(one_.documents.size());
    padded.tokens = *std::ranges::max_element(one_.documents);
    const DenseInputs wide = shared_inputs(padded, device_, options_.seed);
    row_["padded"] = times(UserCall(config, leaves_from(wide)));
    for (const char* other : kLayouts)
      row_[other]["ratio"] = both_passes(row_[other]) / both_passes(row_);
  }

  static double both_passes(const json& arm) {
    double ms = 0;
    for (const char* pass : {"forward", "backward"})
      ms += arm.at(pass).at("hot").at("median_ms").get<double>();
    return ms;
  }

  const UserCase& one_;
  at::Device device_;
  const TargetBenchOptions& options_;
  json& row_;
};

void print_user_row(const json& row) {
  const auto text = [](const json& x) { return x.get<std::string>(); };
  std::fprintf(
      stderr, "%s: %s%s, %d checks\n", text(row.at("id")).c_str(),
      row.value("backend", "-").c_str(),
      row.value("reason", "").empty() ? "" : (" (" + row.value("reason", "") + ")").c_str(),
      row.at("checks_run").get<int>());
  for (const json& problem : row.at("problems"))
    std::fprintf(stderr, "  %s\n", text(problem).c_str());
  const auto line = [](const char* name, const json& arm) {
    std::fprintf(stderr, "  %-15s", name);
    for (const char* pass : {"forward", "backward"})
      std::fprintf(stderr, " %s %.3g ms", pass,
                   arm.at(pass).at("hot").at("median_ms").get<double>());
    if (arm.contains("ratio"))
      std::fprintf(stderr, ", takes %.3g times the packed call", arm.at("ratio").get<double>());
    std::fprintf(stderr, "\n");
  };
  if (row.contains("backward")) line("operator", row);
  for (const char* other : kLayouts)
    if (row.contains(other)) line(other, row.at(other));
}

}  // namespace

json run_users_bench(at::Device device, const std::vector<UserCase>& cases,
                     const TargetBenchOptions& options) {
  json report = bench_report(device, options.seed);
  for (const UserCase& one : cases) {
    if (one.id.find(options.filter) == std::string::npos) continue;
    json row = run_case(one.id, one.config, device,
                        [&](json& out) { UserBench(one, device, options, out).run(); });
    if (!one.documents.empty()) row["documents"] = one.documents;
    print_user_row(row);
    report["cases"].push_back(std::move(row));
    options.keep(report);
  }
  require_cases(report, options.filter);
  return report;
}

}  // namespace suites
