#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/nearest.h"
#include "base/text/plain_text.h"

/// What a program prints for a command line that it refuses.
namespace base {

/// The command of `app` that was called, or `app` itself.
inline const CLI::App& called(const CLI::App& app) {
  const std::vector<CLI::App*> below = app.get_subcommands();
  return below.empty() ? app : called(*below.front());
}

/// The first word that the called command does not take, or empty.
inline std::string unexpected_word(const CLI::App& app) {
  const std::vector<std::string> words = called(app).remaining(false);
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
  const CLI::App& command = called(app);
  const bool option = word.starts_with('-'), chooses = !command.get_subcommands({}).empty();
  const std::string nearest =
      nearest_name(word.substr(0, word.find('=')), known_words(command, option));
  return (option    ? "unknown option '"
          : chooses ? "unknown command '"
                    : command.get_name() + " takes no further word, got '") +
         word + "'" + (nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

/// CLI11's message and where to read on, for CLI::App::failure_message.
inline std::string plain_failure(const CLI::App* app, const CLI::Error& error) {
  const std::string word = unexpected_word(*app);
  const bool unexpected = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  const std::string text = unexpected ? unexpected_text(*app, word) : error.what();
  return CLI::FailureMessage::simple(app,
                                     {error.get_name(), plain_text(text), error.get_exit_code()});
}

}  // namespace base
