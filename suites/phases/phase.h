#pragma once
#include <c10/core/Device.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/case.h"
#include "base/protocol/emitter.h"
#include "nsa/layer/nsa_attention.h"

namespace suites {

/// The case line asks for something that does not exist: exit code 2, nothing has run.
class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(const std::string& text) : std::runtime_error("CONFIG_ERROR: " + text) {}
};

/// The case cannot be decided here, which is no failure of what it looks at: the machine lacks
/// something (`deferred`), or what was recorded is incomplete (`partial`). The text begins with a
/// cause: "CUPTI_BUSY: ...".
class NotDecided : public std::runtime_error {
 public:
  NotDecided(std::string status, const std::string& cause, const std::string& reason)
      : std::runtime_error(cause + ": " + reason), status_(std::move(status)) {}
  const std::string& status() const { return status_; }

 private:
  std::string status_;
};

/// Arguments of one case, checked: an undeclared key and a wrong type are ConfigErrors that name
/// key, value and remedy.
class Args {
 public:
  /// `declared`: every key this kind reads, as in configs/kinds/KIND.json.
  Args(std::string kind, nlohmann::json values, const std::vector<std::string>& declared);
  int64_t get_int(const char* key, int64_t fallback, int64_t minimum) const;
  double get_number(const char* key, double fallback, double minimum) const;
  bool get_bool(const char* key, bool fallback) const;
  std::string get_text(const char* key, const std::string& fallback) const;
  std::vector<std::string> get_list(const char* key,
                                    const std::vector<std::string>& fallback) const;
  /// A list of integers >= minimum; not empty, unless the fallback is.
  std::vector<int64_t> get_ints(const char* key, const std::vector<int64_t>& fallback,
                                int64_t minimum) const;
  bool has(const char* key) const { return values_.contains(key); }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& want) const;
  std::string kind_;
  nlohmann::json values_;
};

/// What a phase kind gets for one case.
struct PhaseCase {
  const base::protocol::CaseIn& in;
  std::string id;
  Args args;
  at::Device device;
  base::protocol::Emitter& emitter;
  nsa::NsaOptions options = {};  ///< what the switches of the phase ask for
  uint64_t seed() const { return static_cast<uint64_t>(in.seed); }
};

/// A phase kind: `run` does one case. A mismatch is a failed check; an exception fails the case
/// with its text. Returns an empty text when the case ended well, else the reason why it failed.
struct PhaseKind {
  std::string_view name;
  std::vector<std::string> args;  ///< keys of `args` it understands
  std::string (*run)(const PhaseCase& one);
  /// Which switches it looks at beside those of every worker (NSA_NVTX): none; the code of the
  /// kernels alone, where its arguments name backends; the choice of the range conversion alone;
  /// all of attention.
  enum class Switches { kNone, kKernels, kRanges, kAttention } switches = Switches::kNone;
};

/// Whether `name` changes what a phase of this kind does.
bool honours(const PhaseKind& kind, std::string_view name);

std::string run_ab_control(const PhaseCase& one);
std::string run_ceilings(const PhaseCase& one);
std::string run_attn_memory(const PhaseCase& one);
std::string run_cpu_attention_ab(const PhaseCase& one);
std::string run_decode_ab(const PhaseCase& one);
std::string run_empty_rows(const PhaseCase& one);
std::string run_gate_health(const PhaseCase& one);
std::string run_hotspots(const PhaseCase& one);
std::string run_layer_scaling(const PhaseCase& one);
std::string run_loader_ab(const PhaseCase& one);
std::string run_operator_conformance(const PhaseCase& one);
std::string run_ranges_ab(const PhaseCase& one);
std::string run_ranges_equivalence(const PhaseCase& one);
std::string run_strict_fallback(const PhaseCase& one);

/// Every phase kind of nsa-worker, by name.
const std::vector<PhaseKind>& phase_kinds();

/// The kind called `name`. Throws ConfigError with the nearest name.
const PhaseKind& find_phase_kind(std::string_view name);

}  // namespace suites
