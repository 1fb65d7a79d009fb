#include "suites/bench/coverage/kernel_coverage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <functional>
#include <regex>
#include <utility>
#include <vector>

#include "nsa/backend/branch_choice.h"
#include "nsa/backend/known_cards.h"
#include "nsa/ops/attention/cpu_attention.h"
#include "suites/bench/coverage/boxes.h"
#include "suites/bench/coverage/text_table.h"

namespace suites {
namespace {

using Row = std::vector<std::string>;

struct TypeAsked {
  const char* name;
  at::ScalarType type;
};
constexpr TypeAsked kTypes[] = {
    {"bf16", at::kBFloat16}, {"fp16", at::kHalf}, {"fp32", at::kFloat}, {"fp64", at::kDouble}};
constexpr std::array<int64_t, 2> kDims[] = {{32, 32},   {64, 64},   {96, 96},
                                            {128, 128}, {192, 128}, {256, 256}};
constexpr int64_t kGroups[] = {1, 2, 4, 6, 8, 16, 32, 64};
constexpr int64_t kTopN[] = {4, 8, 16, 32, 64};
/// l, d, l'.
constexpr std::array<int64_t, 3> kBlocks[] = {{16, 16, 16},  {32, 16, 32}, {32, 16, 48},
                                              {32, 16, 64},  {64, 16, 64}, {32, 16, 128},
                                              {128, 16, 128}};
enum AxisOfCalls { kTypeAxis, kDimsAxis, kGroupAxis, kTopNAxis, kBlocksAxis, kNumAxes };

template <class Values>
std::string with_slashes(const Values& values) {
  std::string text;
  for (const int64_t one : values) text += (text.empty() ? "" : "/") + std::to_string(one);
  return text;
}

std::vector<Axis> axes_of_calls() {
  std::vector<Axis> axes{{"type", {}}, {"dk/dv", {}}, {"G", {}}, {"n", {}}, {"l/d/l'", {}}};
  for (const auto& one : kTypes) axes[kTypeAxis].values.push_back(one.name);
  for (const auto& one : kDims) axes[kDimsAxis].values.push_back(with_slashes(one));
  for (const int64_t one : kGroups) axes[kGroupAxis].values.push_back(std::to_string(one));
  for (const int64_t one : kTopN) axes[kTopNAxis].values.push_back(std::to_string(one));
  for (const auto& one : kBlocks) axes[kBlocksAxis].values.push_back(with_slashes(one));
  return axes;
}

/// What runs, and why no kernel does where one is missing.
struct Ran {
  std::string what, reason;
};

/// The reason without what only this call or card has.
std::string general_reason(const std::string& reason) {
  static const std::regex memory("take up to [0-9]+ KB of shared memory a block, this card has "),
      card(", this card has [0-9.]+$"), limit("the kernels take more .* than ([0-9]+)$");
  const std::string text =
      std::regex_replace(reason, memory, "take more shared memory a block of threads than ");
  if (std::regex_match(text, limit)) return text + " KB";
  return std::regex_replace(text, card, "");
}

std::string name_of(const nsa::KernelChoice& choice) {
  const auto has = [&](const char* word) { return choice.detail.find(word) != std::string::npos; };
  return std::string(has("padded") ? "padded " : "") +
         (choice.code == nsa::KernelCode::kSm90 ? "sm_90 kernels" : "sm_80 kernels") +
         (has("from PTX") ? " from PTX" : "");
}

Ran ran_on_card(const nsa::WholeCall& call, const nsa::CardFacts& card) {
  const nsa::BranchChoices chosen = nsa::choose_branches(call, card, "auto");
  // The compressed branch without the choice of blocks runs where the window does.
  const std::pair<const char*, const nsa::KernelChoice&> branches[] = {
      {chosen.window.runs() ? "choosing blocks" : "compressed", chosen.compressed},
      {"window", chosen.window},
      {"selected", chosen.selected}};
  std::string code, missing, reason;
  for (const auto& [name, choice] : branches) {
    if (choice.runs()) {
      code = name_of(choice);
      continue;
    }
    missing += (missing.empty() ? "" : ", ") + std::string(name);
    if (reason.empty()) reason = general_reason(choice.obstacle);
  }
  if (code.empty()) return {"operators", reason};
  if (chosen.compressed.runs() && chosen.window.runs() &&
      chosen.compressed.code != chosen.window.code)
    code += ", compressed by sm_80's";
  return {missing.empty() ? code : code + " except " + missing, reason};
}

Ran ran_on_cpu(at::ScalarType type) {
  const std::string obstacle = nsa::cpu_kernel_obstacle(at::empty({0}, type));
  return {obstacle.empty() ? "CPU kernels" : "operators", obstacle};
}

struct Column {
  std::string name;
  std::function<Ran(at::ScalarType, const nsa::WholeCall&)> ran;
};

std::vector<Column> columns_of_cards() {
  const auto card = [](const char* name, const nsa::CardFacts& facts) {
    return Column{name, [&facts](at::ScalarType, const nsa::WholeCall& call) {
                    return ran_on_card(call, facts);
                  }};
  };
  return {card("sm_80", nsa::kA100),
          card("sm_86", nsa::kRtx30),
          card("sm_89", nsa::kRtx40),
          card("sm_90", nsa::kH100),
          card("sm_100", nsa::kB200),
          card("sm_103", nsa::kB300),
          card("sm_120", nsa::kRtx50),
          {"CPU", [](at::ScalarType type, const nsa::WholeCall&) { return ran_on_cpu(type); }}};
}

/// Letters of the reasons, in the order in which they are met.
class Footnotes {
 public:
  std::string mark(const std::string& reason) {
    const auto at = std::ranges::find(reasons_, reason);
    const auto index = static_cast<size_t>(at - reasons_.begin());
    if (at == reasons_.end()) reasons_.push_back(reason);
    return std::string("(") + static_cast<char>('a' + index) + ")";
  }
  std::string text() const {
    std::string text;
    for (size_t i = 0; i < reasons_.size(); ++i)
      text +=
          std::string(i == 0 ? "" : "; ") + "(" + static_cast<char>('a' + i) + ") " + reasons_[i];
    return text + ".\n";
  }

 private:
  std::vector<std::string> reasons_;
};

using Place = std::array<size_t, kNumAxes>;

CoveredCall call_at(const Place& at) {
  const at::ScalarType type = kTypes[at[kTypeAxis]].type;
  const auto& [dk, dv] = kDims[at[kDimsAxis]];
  const auto& [l, d, sel] = kBlocks[at[kBlocksAxis]];
  return {type,
          {.sixteen_bits = type == at::kBFloat16 || type == at::kHalf,
           .num_heads = kGroups[at[kGroupAxis]],
           .qk_head_dim = dk,
           .v_head_dim = dv,
           .block_size = l,
           .block_stride = d,
           .sel_block_size = sel,
           .top_n = kTopN[at[kTopNAxis]]}};
}

Box box_of(const Place& at, const std::vector<Column>& columns) {
  const CoveredCall one = call_at(at);
  Box box;
  for (const size_t index : at) box.sets.push_back({index});
  for (const Column& column : columns) {
    const Ran ran = column.ran(one.type, one.call);
    box.value.push_back(ran.what);
    box.value.push_back(ran.reason);
  }
  return box;
}

/// Places of all calls.
std::vector<Place> all_places(const std::vector<Axis>& axes) {
  std::vector<Place> places;
  Place at{};
  for (size_t axis = 0; axis < kNumAxes;) {
    places.push_back(at);
    for (axis = 0; axis < kNumAxes && ++at[axis] == axes[axis].values.size(); ++axis) at[axis] = 0;
  }
  return places;
}

/// Columns that agree in every row become one, named after all of them.
void join_columns(std::vector<Row>& rows, size_t first) {
  for (size_t i = first; i + 1 < rows.front().size();) {
    const bool same = std::all_of(rows.begin() + 1, rows.end(),
                                  [&](const Row& row) { return row[i] == row[i + 1]; });
    if (same) rows.front()[i] += ", " + rows.front()[i + 1];
    for (Row& row : rows)
      if (same) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    i += same ? 0 : 1;
  }
}

Row row_of(const Box& box, const std::vector<Axis>& axes, Footnotes& notes) {
  Row row;
  for (size_t axis = 0; axis < kNumAxes; ++axis)
    row.push_back(set_text(axes[axis], box.sets[axis], axis == kGroupAxis || axis == kTopNAxis));
  for (size_t i = 0; i < box.value.size(); i += 2)
    row.push_back(box.value[i] +
                  (box.value[i + 1].empty() ? "" : " " + notes.mark(box.value[i + 1])));
  return row;
}

/// What "any" stands for.
std::string asked_for(const std::vector<Axis>& axes) {
  std::string text = "Any:";
  for (const Axis& axis : axes) {
    text += (&axis == axes.data() ? " " : "; ") + axis.name;
    for (const std::string& value : axis.values)
      text += (value == axis.values.front() ? " " : ", ") + value;
  }
  return text + ".\n";
}

}  // namespace

std::vector<CoveredCall> coverage_calls() {
  std::vector<CoveredCall> calls;
  for (const Place& at : all_places(axes_of_calls())) calls.push_back(call_at(at));
  return calls;
}

std::string kernel_coverage(bool markdown) {
  const std::vector<Axis> axes = axes_of_calls();
  const std::vector<Column> columns = columns_of_cards();
  Row header;
  for (const Axis& axis : axes) header.push_back(axis.name);
  for (const Column& column : columns) header.push_back(column.name);
  std::vector<Row> rows{header};
  Footnotes notes;
  std::vector<Box> boxes;
  for (const Place& at : all_places(axes)) boxes.push_back(box_of(at, columns));
  for (const Box& box : join_boxes(std::move(boxes))) rows.push_back(row_of(box, axes, notes));
  join_columns(rows, axes.size());
  return table_text(rows, markdown) + "\n" + asked_for(axes) + "\n" + notes.text();
}

}  // namespace suites
