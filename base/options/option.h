#pragma once
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace base {

/// How the values of a list are given.
enum class ListForm {
  kCommas,    ///< --only a,b
  kWords,     ///< --in a b
  kRepeated,  ///< --set a.k=1,2 --set b.k=3: a value may hold a comma
};

/// What a text must be. A variable of a script that was never set is an empty text.
enum class TextMust { kBeAnything, kNotBeEmpty, kNameFile, kNameFolder };

/// One option of a program. A struct of options describes each of its members once, with
/// `static void describe(Visitor& v)` and a line `v(OptionDoc, &Struct::member)` each; command
/// line, help, arguments of a case, checks and record follow from it (command_line.h).
struct OptionDoc {
  std::string_view name;       ///< key of an argument; the flag has dashes: seq_len is --seq-len
  std::string_view doc;        ///< one phrase
  std::string_view flag = "";  ///< where the flag differs
  /// Bounds of a number, whole numbers themselves; NaN is outside of all.
  double least = -std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::string_view choices = "";  ///< the words that a text may be: "auto, on or off"
  TextMust must = TextMust::kBeAnything;
  ListForm form = ListForm::kCommas;
  int words = 0;                   ///< a list of words: how many at most; 0: any number
  bool required = false;           ///< the command line is refused without it
  bool positional = false;         ///< without a flag; `name` is shown as it is
  std::string_view not_with = "";  ///< name of the option that excludes it
  std::string_view commands = "";  ///< commands that take it: "list|baseline promote"; empty: all
  bool on_command_line = true;     ///< false: an argument only
  bool in_kind = true;             ///< an argument of the program's phase kind
  bool recorded = false;           ///< part of the record that the program writes
};

/// "--seq-len"; for a positional option its name.
inline std::string flag_of(const OptionDoc& option) {
  std::string flag(option.flag.empty() ? option.name : option.flag);
  if (option.positional) return flag;
  for (char& c : flag)
    if (c == '_') c = '-';
  return "--" + flag;
}

/// Whether the option belongs to a command.
inline bool takes(std::string_view command, const OptionDoc& option) {
  const std::string all = "|" + std::string(option.commands) + "|";
  return option.commands.empty() || all.find("|" + std::string(command) + "|") != std::string::npos;
}

/// The words of a list such as "auto, on or off".
inline std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find_first_of(", "));
    if (!word.empty() && word != "or") words.emplace_back(word);
    list.remove_prefix(word.size() == list.size() ? list.size() : word.size() + 1);
  }
  return words;
}

inline bool is_within(const OptionDoc& option, double value) {
  return value >= option.least && value > option.above && value <= option.most;
}

/// ">= 1", "> 0" or "from 1 to 4096"; empty where a number has no bounds.
inline std::string bounds_of(const OptionDoc& option) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const auto text = [](double bound) { return std::to_string(static_cast<long long>(bound)); };
  if (option.most < kNone) return "from " + text(option.least) + " to " + text(option.most);
  if (option.above > -kNone) return "> " + text(option.above);
  return option.least > -kNone ? ">= " + text(option.least) : "";
}

}  // namespace base
