#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nsa/reference/reference.h"
#include "suites/reference_cases/tensor_files.h"

namespace suites {

/// One case of the kinds forward, varlen, decode, topn, ranges or gates, as read from its file.
struct ReferenceCase {
  std::string name, kind;
  nsa::reference::Config config;
  nsa::reference::Inputs inputs;               ///< forward, decode: [B,S,...]; varlen: [T,...]
  std::vector<int32_t> cu_seqlens;             ///< varlen
  std::vector<int64_t> prefill;                ///< decode: tokens of each sequence's prefill
  nsa::reference::Tensor<double> scores;       ///< topn
  nsa::reference::Tensor<int32_t> block_idx;   ///< ranges
  nsa::reference::GateMlpWeights gate_mlp;     ///< gates; q is in inputs
  nsa::reference::Tensor<double> d_o;          ///< gradients are wanted
  std::map<std::string, FileTensor> expected;  ///< by name, without the prefix "expected."
};

/// The case in a file that has been read; it may lack expected tensors. Throws
/// std::invalid_argument naming what is wrong: missing or unknown keys, unknown input tensors, a B
/// or S that contradicts the tensors, an invalid configuration.
ReferenceCase make_case(TensorFile file);

/// Reads a case. Throws std::invalid_argument or TensorFileError naming the file and what is wrong;
/// a case without expected tensors is refused too.
ReferenceCase load_case(const std::filesystem::path& path);

/// A file tensor as the oracle takes it. `as_indices` requires I32 or I64.
nsa::reference::Tensor<double> as_doubles(const FileTensor& tensor);
nsa::reference::Tensor<int32_t> as_indices(const FileTensor& tensor);

}  // namespace suites
