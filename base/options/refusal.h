#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/text/nearest.h"
#include "base/text/plain_text.h"

/// What a program prints for a command line that it refuses.
namespace base {

/// The command of `app` that was called, or `app` itself.
inline const CLI::App* called(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

/// The first word that the called command does not take, or empty.
inline std::string unexpected_word(const CLI::App& app) {
  const std::vector<std::string> words = called(&app)->remaining(false);
  return words.empty() ? "" : words.front();
}

/// Names of the options of `command`, or of the commands below it.
inline std::vector<std::string> known_words(const CLI::App& command, bool options) {
  std::vector<std::string> known;
  if (options)
    for (const CLI::Option* option : command.get_options({}))
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  else
    for (const CLI::App* below : command.get_subcommands({})) known.push_back(below->get_name());
  return known;
}

/// "unknown option '--step'; did you mean '--steps'?"
inline std::string unexpected_text(const CLI::App& app, const std::string& word) {
  const CLI::App& command = *called(&app);
  const bool option = word.starts_with('-'), chooses = !command.get_subcommands({}).empty();
  const std::string nearest =
      nearest_name(word.substr(0, word.find('=')), known_words(command, option));
  return (option    ? "unknown option '"
          : chooses ? "unknown command '"
                    : command.get_name() + " takes no further word, got '") +
         word + "'" + (nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

/// "history needs one of its commands: import, list, trend"
inline std::string missing_command_text(const CLI::App& command) {
  std::string text = command.get_name() + " needs one of its commands:", separator = " ";
  for (const std::string& name : known_words(command, /*options=*/false))
    text += std::exchange(separator, ", ") + name;
  return text;
}

/// What is wrong with the command line, from CLI11's error.
inline std::string refusal_text(const CLI::App& app, const CLI::Error& error) {
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  const CLI::App& command = *called(&app);
  if (is(CLI::ExitCodes::ExtrasError)) return unexpected_text(app, unexpected_word(app));
  if (is(CLI::ExitCodes::RequiredError) && command.get_require_subcommand_min() > 0)
    return missing_command_text(command);
  return error.what();
}

/// The same and where to read on, for CLI::App::failure_message.
inline std::string plain_failure(const CLI::App* app, const CLI::Error& error) {
  return CLI::FailureMessage::simple(
      app, {error.get_name(), plain_text(refusal_text(*app, error)), error.get_exit_code()});
}

}  // namespace base
