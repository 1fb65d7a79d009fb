#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/options/option.h"

namespace suites::eval {

/// The command line of nsa-eval; the words are checked, files and tensors not yet. An empty text
/// leaves the choice to the file or to the switches.
struct EvalOptions {
  std::string in, out;
  std::string config;
  std::string op;
  std::string backend;
  std::string device = "cpu";
  std::string dtype = "fp64";
  std::string mode;
  std::vector<int64_t> prefill;  ///< one for all sequences, or one each; empty: the metadata's
  bool grad = false;
  bool p_cmp = false;

  /// The only description of the options: command line, help, checks and record follow from it.
  template <class Visitor>
  static void describe(Visitor& v);
};

enum class ParseEnd { kRun, kHelp, kBad };

/// Reads the command line; prints help or the error.
ParseEnd parse_options(int argc, char** argv, EvalOptions& options);

template <class Visitor>
void EvalOptions::describe(Visitor& v) {
  using O = EvalOptions;
  v({.name = "in", .doc = "safetensors file with inputs", .required = true}, &O::in);
  v({.name = "out", .doc = "safetensors file to write; appears when it is whole", .required = true},
    &O::out);
  v({"config", "JSON file; its keys override the file's `config`"}, &O::config);
  v({.name = "op",
     .doc = "what to evaluate (default: by the file's kind, else layer)",
     .choices = "layer, compress, scores, select, ranges, sel_attn, win_attn or gate",
     .recorded = true},
    &O::op);
  v({.name = "backend",
     .doc = "sel_attn: gather, packed, varlen, masked, fused, cpu; ranges: v1, v1_bulk, v2; "
            "win_attn and scores: plain, flash, cudnn, fused, cpu; layer: any, several with commas",
     .recorded = true},
    &O::backend);
  v({.name = "device", .doc = "cpu, cuda or cuda:N", .recorded = true}, &O::device);
  v({.name = "dtype",
     .doc = "type of the computation; inputs are rounded to it once",
     .choices = "fp64, fp32, bf16 or fp16",
     .recorded = true},
    &O::dtype);
  v({.name = "mode",
     .doc = "batched, sequential or decode (default: decode for kind decode)",
     .choices = "batched, sequential or decode",
     .recorded = true},
    &O::mode);
  v({.name = "prefill",
     .doc = "decode: tokens before the first single step; N or N1,N2..",
     .least = 0},
    &O::prefill);
  v({.name = "grad", .doc = "gradients d_NAME of every input read", .recorded = true}, &O::grad);
  v({"p_cmp", "write p_cmp even above 2 M elements"}, &O::p_cmp);
}

}  // namespace suites::eval
