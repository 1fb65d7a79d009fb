#pragma once

namespace nsa {

/// Settings of every registered operator: Config (head counts and dims apart) and Options.
inline constexpr const char* kSettings =
    "int block_size=32, int block_stride=16, int sel_block_size=64, int top_n=16, "
    "int num_initial=1, int num_local=2, int window=512, str gate='softmax', "
    "str rope='before_pool', float rope_base=10000.0, str rope_pairs='interleaved', "
    "float? scale_cmp=None, float? scale_sel=None, float? scale_win=None, str backend='auto', "
    "bool strict=False";

}  // namespace nsa
