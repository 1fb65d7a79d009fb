#include "nsa/backend/branch_choice.h"

#include "nsa/kernels/common/size_limits.h"

namespace nsa {

BranchChoices choose_branches(const WholeCall& call, const CardFacts& card,
                              const std::string& wanted_code) {
  const auto dims = kernels::computed_head_dims(call.qk_head_dim, call.v_head_dim);
  const kernels::HeadSizes heads{call.num_heads, call.num_kv_heads, dims.qk, dims.v};
  const int64_t group = call.num_heads / call.num_kv_heads;
  const kernels::SelectionSizes selection{group, call.block_size, call.block_stride,
                                          call.sel_block_size, call.top_n};
  const auto choose = [&](KernelFamily family, bool selects) {
    return choose_kernel({.family = family,
                          .sixteen_bits = call.sixteen_bits,
                          .qk_head_dim = call.qk_head_dim,
                          .v_head_dim = call.v_head_dim,
                          .group_size = group,
                          .selects = selects,
                          .wide_lists = selection.wide_lists(),
                          .num_keys = call.num_keys},
                         card, wanted_code);
  };
  BranchChoices choices;
  const char* interval = kernels::unsupported_interval(heads);
  choices.window = choose(KernelFamily::kInterval, false).unless(interval);
  choices.compressed = choose(KernelFamily::kInterval, true)
                           .unless(interval)
                           .unless(kernels::unsupported_selection(selection));
  kernels::HeadSizes split = heads;  // as sel_attn splits groups
  split.num_kv_heads *= kernels::group_parts(group);
  const KernelChoice rows = choose(KernelFamily::kSelectedRows, false)
                                .unless(kernels::unsupported_rows(split, call.top_n));
  choices.selected = rows.runs()
                         ? choose(KernelFamily::kSelectedKeys, false)
                               .unless(kernels::unsupported_selected_backward(split, call.top_n))
                         : rows;
  return choices;
}

}  // namespace nsa
