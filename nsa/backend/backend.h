#pragma once
#include <cstdint>
#include <string>

namespace nsa {

/// How the selected branch is computed; all give the same result within the tolerance table.
enum class SelBackend {
  kGather,  ///< a loop over chunks of queries that gathers each row's own keys and values
  kPacked,  ///< rows bucketed by length, so that little padding is computed
  kVarlen,  ///< rows as sequences of one packed attention call over cu_seqlens
  kMasked,  ///< all keys in reach, masked
  kFused,   ///< the project's own CUDA kernels; what they do not cover goes as kGather
  kCpu,     ///< the project's own CPU kernels; what they do not cover goes as kGather
};

/// How the window and the compressed branch are computed.
enum class BranchBackend {
  kPlain,  ///< the project's own composition of ATen operations
  kFlash,  ///< the library's flash attention
  kCudnn,  ///< the library's cuDNN attention
  kFused,  ///< the project's own CUDA kernels, forward and backward
  kCpu,    ///< the project's own CPU kernels, forward and backward
};

/// "gather", "packed", "varlen", "masked", "fused", "cpu" / "plain", "flash", "cudnn", "fused",
/// "cpu". The parsers throw std::invalid_argument naming the value and the choices.
std::string to_string(SelBackend backend);
std::string to_string(BranchBackend backend);
SelBackend parse_sel_backend(const std::string& text);
BranchBackend parse_branch_backend(const std::string& text);

/// What a caller asks of the window or the compressed branch.
struct BranchOptions {
  BranchBackend backend = BranchBackend::kPlain;
  bool strict = false;  ///< true: a backend that does not apply is an error, not a record
};

/// What a caller asks of the selected branch.
struct SelAttnOptions {
  SelBackend backend = SelBackend::kGather;
  bool safe_pack = true;  ///< false: `packed` may use its workspace, which has no gradient
  bool strict = false;    ///< true: a backend that does not apply is an error, not a record
  /// Tokens of the aligned blocks, at most K a row, that the ranges are made of; 0: any ranges. It
  /// bounds what the backward pass of `fused` works in.
  int64_t block_size = 0;
};

}  // namespace nsa
