#pragma once
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/options/option.h"
#include "base/options/whole_number.h"

namespace base {

/// Text of a whole number that CLI11 would read as another one: beyond 64 bits, the largest.
inline CLI::Validator fits_64_bits() {
  return {[](std::string& text) {
            errno = 0;
            std::strtoll(text.c_str(), nullptr, 0);
            return errno == ERANGE ? "must be a whole number from -2^63 to 2^63 - 1, got " + text
                                   : std::string();
          },
          ""};
}

inline CLI::Validator within_bounds(const OptionDoc& option) {
  return {[option](std::string& text) {
            return is_within(option, std::strtod(text.c_str(), nullptr))
                       ? std::string()
                       : "must be " + bounds_of(option) + ", got " + text;
          },
          ""};
}

inline CLI::Validator not_empty() {
  return {[](std::string& text) { return text.empty() ? std::string("must not be empty") : ""; },
          ""};
}

/// Declares the described options that a command takes.
template <class Options>
class CommandLine {
 public:
  CommandLine(CLI::App& app, Options& options, std::string command)
      : app_(app), options_(options), command_(std::move(command)) {}

  template <class T>
  void operator()(const OptionDoc& option, T Options::* member) {
    if (!option.on_command_line || !takes(command_, option)) return;
    CLI::Option* added = add(option, options_.*member);
    if (option.required) added->required();
    if (!option.choices.empty()) added->check(CLI::IsMember(words_of(option.choices)));
    if (option.must == TextMust::kNotBeEmpty) added->check(not_empty());
    if (option.must == TextMust::kNameFile) added->check(CLI::ExistingFile);
    if (option.must == TextMust::kNameFolder) added->check(CLI::ExistingDirectory);
    if (!option.not_with.empty()) apart_.emplace_back(added, option.not_with);
  }

  /// When all are declared: those that exclude each other.
  void exclude() {
    for (const auto& [option, other] : apart_)
      if (CLI::Option* found = app_.get_option_no_throw("--" + std::string(other)))
        option->excludes(found);
  }

 private:
  CLI::Option* add(const OptionDoc& option, bool& value) {
    return app_.add_flag(flag_of(option), value, std::string(option.doc));
  }

  CLI::Option* add(const OptionDoc& option, uint64_t& value) {
    const std::string flag = flag_of(option);
    const auto read = [flag, otherwise = value, &value](const std::string& text) {
      try {
        value = read_whole_number(flag, text, otherwise);
      } catch (const std::invalid_argument& error) {
        throw CLI::ValidationError(error.what());
      }
    };
    return app_.add_option_function<std::string>(flag, read, std::string(option.doc))
        ->type_name("UINT")
        ->default_str(std::to_string(value));
  }

  CLI::Option* add(const OptionDoc& option, int64_t& value) {
    return add_number(option, value)->check(fits_64_bits());
  }

  CLI::Option* add(const OptionDoc& option, double& value) { return add_number(option, value); }

  template <class T>
  CLI::Option* add(const OptionDoc& option, std::vector<T>& values) {
    CLI::Option* added = app_.add_option(flag_of(option), values, std::string(option.doc));
    if (option.form == ListForm::kWords)
      return option.words > 0 ? added->expected(1, option.words) : added;
    if (option.form == ListForm::kCommas) added->delimiter(',');
    if constexpr (std::is_same_v<T, int64_t>) added->check(fits_64_bits());
    if (!bounds_of(option).empty()) added->check(within_bounds(option));
    return added->allow_extra_args(false);
  }

  template <class T>
  CLI::Option* add(const OptionDoc& option, T& value) {
    return app_.add_option(flag_of(option), value, std::string(option.doc))->capture_default_str();
  }

  template <class T>
  CLI::Option* add_number(const OptionDoc& option, T& value) {
    const std::string flag = flag_of(option);
    const auto take = [flag, option, &value](const T& given) {
      if (!is_within(option, static_cast<double>(given)))
        throw CLI::ValidationError(flag + " must be " + bounds_of(option) + ", got " +
                                   text_of(given));
      value = given;
    };
    return app_.add_option_function<T>(flag, take, std::string(option.doc))
        ->default_str(text_of(value));
  }

  template <class T>
  static std::string text_of(const T& value) {
    std::ostringstream text;
    text << value;
    return text.str();
  }

  CLI::App& app_;
  Options& options_;
  std::string command_;
  std::vector<std::pair<CLI::Option*, std::string_view>> apart_;
};

/// Puts the options that `command` takes on the command line of `app`; `options` must live until it
/// was parsed.
template <class Options>
void declare(CLI::App& app, Options& options, const std::string& command = "") {
  CommandLine<Options> line(app, options, command);
  Options::describe(line);
  line.exclude();
}

}  // namespace base
