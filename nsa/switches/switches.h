#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nsa {

enum class SwitchType { kBool, kInt, kChoice, kText };
/// Source of a value; a later one has precedence.
enum class SwitchOrigin { kDefault, kConfig, kEnvironment, kCommandLine };
/// "default", "config", "environment", "command line".
std::string to_string(SwitchOrigin origin);

/// One line of the registry.
struct SwitchInfo {
  std::string name;
  SwitchType type;
  std::string default_value;     ///< as text; "" means: taken from the run's configuration
  std::string meaning;           ///< one sentence
  std::string choices = "";      ///< kChoice: allowed words, separated by '|'
  int64_t minimum = 0;           ///< kInt: least value allowed
  bool selects_backend = false;  ///< at most one of these may be on
};

/// A value in force, for recording.
struct SwitchValue {
  std::string name;
  std::string value;
  std::string origin;
};

/// Every switch there is, in the order of the table. The only list of switches in the project.
const std::vector<SwitchInfo>& switch_registry();

/// The values in force for one program run: default < config < environment < command line.
/// Errors are std::invalid_argument naming switch, value, origin and remedy.
class SwitchSet {
 public:
  using Values = std::map<std::string, std::string>;

  /// All defaults.
  SwitchSet();
  /// Reads NSA_* of the process environment (nothing else in the project does) and merges.
  /// Throws on an unknown NSA_* name (naming the nearest one), a value of the wrong type, and
  /// more than one selection backend.
  static SwitchSet from_environment(const Values& config = {}, const Values& command_line = {});
  /// The same with a given environment: a pure function. Names without the prefix NSA_ are ignored
  /// in `environment` and are errors elsewhere.
  static SwitchSet from(const Values& config, const Values& environment,
                        const Values& command_line);

  /// Typed readers; asking with the wrong type or an unknown name is std::logic_error.
  bool get_bool(std::string_view name) const;
  /// A switch whose default is taken from the configuration returns `fallback` when it was not set.
  int64_t get_int(std::string_view name, int64_t fallback = 0) const;
  std::string get_text(std::string_view name) const;
  bool is_default(std::string_view name) const;

  /// Throws if a switch has a non-default value but is not among `honoured`:
  /// `<name>=<value> (<origin>) is ignored by <path>; unset it or choose another path`.
  void require_honoured(std::string_view path,
                        std::initializer_list<std::string_view> honoured) const;

  /// Every switch in registry order, with value and origin.
  std::vector<SwitchValue> list() const;

 private:
  struct Entry {
    std::string value;
    SwitchOrigin origin = SwitchOrigin::kDefault;
  };
  void merge(const Values& values, SwitchOrigin origin);
  void check_backends() const;
  const Entry& entry(std::string_view name, SwitchType type) const;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace nsa
