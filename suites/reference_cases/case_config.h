#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace suites {

/// Metadata key `config` of a tensor file (docs/semantics.md, Tensor files), as far as it is there:
/// nothing is filled in, and sizes are not yet checked against each other.
struct CaseConfig {
  std::string name, kind;                ///< "" where absent
  std::optional<int64_t> batch, tokens;  ///< B, S
  std::vector<int64_t> prefill;          ///< one for all sequences, or one each; empty: absent
  std::map<std::string, int64_t> sizes;  ///< cfg: Hq, Hkv, dk, dv, l, d, lsel, n, ..., w, K
  std::map<std::string, std::string> choices;  ///< cfg: phi, rope, rope_pairs, gate
  std::optional<double> rope_base;
  std::map<std::string, double> scales;  ///< cfg: scale (all branches), scale_cmp, _sel, _win

  /// Throws std::invalid_argument "config: cfg.KEY is missing".
  int64_t size(const std::string& key) const;
  /// The choice, or `fallback` where it is absent.
  std::string choice(const std::string& key, const std::string& fallback) const;
  /// cfg.scale_BRANCH, else cfg.scale, else nothing. BRANCH: cmp, sel, win.
  std::optional<double> scale(const std::string& branch) const;
};

/// Parses the JSON `text`; keys of `overriding` (the same JSON, "" for none) replace those of
/// `text`, in cfg one by one. Throws std::invalid_argument "config: ..." naming key and value:
/// malformed JSON, duplicate keys, wrong types, unknown keys of cfg, unknown choices, sizes beyond
/// 2^30. Other keys beside cfg (seed, notes) are remarks.
CaseConfig parse_case_config(const std::string& text, const std::string& overriding = "");

/// One length a sequence, each in 0..tokens; a single number stands for all of `batch`. Errors
/// begin with `source`.
std::vector<int64_t> prefill_lengths(std::vector<int64_t> given, int64_t batch, int64_t tokens,
                                     const std::string& source = "config: prefill");

}  // namespace suites
