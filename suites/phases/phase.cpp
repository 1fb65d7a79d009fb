#include "suites/phases/phase.h"

#include <algorithm>

#include "base/text/nearest.h"
#include "suites/phases/training_phases.h"

namespace suites {

Args::Args(std::string kind, nlohmann::json values, const std::vector<std::string>& declared)
    : kind_(std::move(kind)), values_(std::move(values)) {
  // first_step_s is read by the engine, for every kind.
  for (const auto& [key, value] : values_.items())
    if (key != "first_step_s" && std::find(declared.begin(), declared.end(), key) == declared.end())
      throw ConfigError("args." + key + " is not an argument of " + kind_ +
                        "; nearest: " + base::closest_name(key, declared));
}

void Args::refuse(const char* key, const std::string& want) const {
  throw ConfigError("args." + std::string(key) + " of " + kind_ + " must be " + want + ", got " +
                    values_.at(key).dump());
}

int64_t Args::get_int(const char* key, int64_t fallback, int64_t minimum) const {
  if (!has(key)) return fallback;
  const auto& value = values_.at(key);
  if (!value.is_number_integer() || value.get<int64_t>() < minimum)
    refuse(key, "an integer >= " + std::to_string(minimum));
  return value.get<int64_t>();
}

double Args::get_number(const char* key, double fallback, double minimum) const {
  if (!has(key)) return fallback;
  const auto& value = values_.at(key);
  if (!value.is_number() || !(value.get<double>() >= minimum))
    refuse(key, "a number >= " + std::to_string(minimum));
  return value.get<double>();
}

bool Args::get_bool(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!values_.at(key).is_boolean()) refuse(key, "true or false");
  return values_.at(key).get<bool>();
}

std::string Args::get_text(const char* key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!values_.at(key).is_string()) refuse(key, "a string");
  return values_.at(key).get<std::string>();
}

std::vector<std::string> Args::get_list(const char* key,
                                        const std::vector<std::string>& fallback) const {
  if (!has(key)) return fallback;
  const auto& value = values_.at(key);
  const bool texts =
      value.is_array() && !value.empty() &&
      std::all_of(value.begin(), value.end(), [](const auto& item) { return item.is_string(); });
  if (!texts) refuse(key, "a list of strings, not empty");
  return value.get<std::vector<std::string>>();
}

std::vector<int64_t> Args::get_ints(const char* key, const std::vector<int64_t>& fallback,
                                    int64_t minimum) const {
  if (!has(key)) return fallback;
  const auto& value = values_.at(key);
  const bool fits = value.is_array() && (!value.empty() || fallback.empty()) &&
                    std::all_of(value.begin(), value.end(), [&](const auto& item) {
                      return item.is_number_integer() && item.template get<int64_t>() >= minimum;
                    });
  if (!fits)
    refuse(key, "a list of integers >= " + std::to_string(minimum) +
                    (fallback.empty() ? "" : ", not empty"));
  return value.get<std::vector<int64_t>>();
}

const std::vector<PhaseKind>& phase_kinds() {
  using enum PhaseKind::Switches;
  static const std::vector<PhaseKind> kinds = {
      {"ab_control",
       {"B", "S", "Hkv", "K", "lsel", "slowdown_pct", "rounds", "work", "sample_ms", "fault"},
       run_ab_control},
      {"attn_memory",
       {"S", "B", "backends", "Hq", "Hkv", "dk", "samples", "rows", "dtype", "fault"},
       run_attn_memory,
       kKernels},
      {"ceilings", {}, run_ceilings},
      {"checkpointing_ab",
       {"model", "S", "B", "rounds", "dtype", "backend", "fault"},
       run_checkpointing_ab,
       kAttention},
      {"cpu_attention_ab",
       {"S", "work", "Hq", "Hkv", "dk", "rounds", "rows", "repeat", "dtype", "first_step_s",
        "fault"},
       run_cpu_attention_ab},
      {"context_parallel",
       {"model", "S", "equal_S", "B", "ranks", "rank_timeout_s", "transfers", "rows", "fault"},
       run_context_parallel,
       kAttention},
      {"ddp_sweep",
       {"model", "S", "B", "accum", "caps", "compress", "rounds", "calls", "warmup", "ranks",
        "rank_timeout_s", "dtype", "backend", "cuda_graph", "fault"},
       run_ddp_sweep,
       kAttention},
      {"decode_ab",
       {"contexts", "Hq", "Hkv", "dk", "rounds", "steps", "dtype", "fault"},
       run_decode_ab},
      {"empty_rows", {"backends", "dtypes", "S", "fault"}, run_empty_rows, kKernels},
      {"gate_health", {"layers", "dk", "tokens", "fault"}, run_gate_health},
      {"hotspots",
       {"subject",     "model",   "S",
        "B",           "accum",   "cuda_graph",
        "Hq",          "Hkv",     "dk",
        "dv",          "backend", "steps",
        "warmup",      "pairs",   "chrome_steps",
        "cost_rounds", "ranks",   "rank_timeout_s",
        "dtype",       "fault"},
       run_hotspots,
       kAttention},
      {"layer_scaling",
       {"model", "layers", "S", "B", "rounds", "dtype", "fault"},
       run_layer_scaling},
      {"loader_ab",
       {"data", "data_root", "B", "S", "batches", "rounds", "step_us", "fault"},
       run_loader_ab},
      {"operator_conformance",
       {"ops", "dtypes", "configs", "fault"},
       run_operator_conformance,
       kAttention},
      {"ranges_ab", {"B", "S", "Hkv", "K", "lsel", "arms", "rounds", "fault"}, run_ranges_ab},
      {"ranges_equivalence", {"file", "fault"}, run_ranges_equivalence, kRanges},
      {"recall",
       {"model", "attention", "seeds",        "threads",     "S",    "pairs",    "vocab", "lead",
        "gap",   "power",     "least_pairs",  "random_fill", "rows", "val_rows", "steps", "batch",
        "lr",    "warmup",    "weight_decay", "fault"},
       run_recall},
      {"retrieval",
       {"model",   "attention",   "seeds",    "threads",      "S",
        "first_S", "first_steps", "least_S",  "lengths",      "depths",
        "digits",  "rows",        "val_rows", "steps",        "batch",
        "lr",      "later_lr",    "warmup",   "weight_decay", "fault"},
       run_retrieval},
      {"sharded_training",
       {"model", "S", "B", "steps", "ranks", "rank_timeout_s", "dtype", "backend", "bound", "parts",
        "shards", "node_ranks", "network_gb_s", "network_us", "fault"},
       run_sharded_training,
       kAttention},
      {"validation",
       {"model", "attention", "seeds", "threads", "data", "data_root", "S", "val_rows", "steps",
        "batch", "lr", "warmup", "weight_decay", "fault"},
       run_validation},
      {"strict_fallback", {"backends", "dtype", "S", "fault"}, run_strict_fallback, kKernels},
  };
  return kinds;
}

bool honours(const PhaseKind& kind, std::string_view name) {
  // Those of NsaOptions::from.
  static const std::vector<std::string_view> kAttention = {
      "NSA_SEL_RANGES_V2",   "NSA_USE_SEL_PACK",    "NSA_USE_SEL_VARLEN", "NSA_USE_SEL_MASK",
      "NSA_FORCE_SEL_MASK",  "NSA_FORCE_PARITY",    "NSA_USE_FA2",        "NSA_USE_FA2_WIN",
      "NSA_USE_FA2_CMP",     "NSA_TRAIN_SAFE_PACK", "NSA_STRICT_ASSERTS", "NSA_SDPA_AUDIT",
      "NSA_PREFILL_BATCHED", "NSA_KERNELS"};
  // NSA_CASES_DIR names the folder of test cases; NSA_NVTX changes no result.
  if (name == "NSA_NVTX" || name == "NSA_CASES_DIR") return true;
  if (kind.switches == PhaseKind::Switches::kKernels) return name == "NSA_KERNELS";
  if (kind.switches == PhaseKind::Switches::kRanges) return name == "NSA_SEL_RANGES_V2";
  return kind.switches == PhaseKind::Switches::kAttention &&
         std::ranges::find(kAttention, name) != kAttention.end();
}

const PhaseKind& find_phase_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const PhaseKind& kind : phase_kinds()) {
    if (kind.name == name) return kind;
    names.emplace_back(kind.name);
  }
  throw ConfigError("kind must be one of nsa-worker's phase kinds, got '" + std::string(name) +
                    "'; nearest: " + base::closest_name(name, names));
}

}  // namespace suites
