#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/field.h"

/// What a runbook asks and how its report answers: written in the runbook, checked when it is
/// loaded, copied into results.json. Sentences hold figures as {METRIC}; nothing of a run but its
/// figures and verdicts enters them.
namespace harness {

/// A sentence of the answer. It makes its claim only where the criteria that prove it PASS.
struct Sentence {
  std::string text;               ///< {METRIC} is the figure of this name, with its interval
  std::vector<std::string> when;  ///< ids of criteria that must PASS; "C-x.*" for all that begin so
  std::string otherwise;          ///< the sentence where one does not PASS; empty: none
  template <class V>
  static void describe(V& v) {
    v({.name = "text", .doc = "{METRIC} stands for the figure of this name", .required = true},
      &Sentence::text);
    v({.name = "when", .doc = "criteria that must PASS; C-x.* for all that begin so"},
      &Sentence::when);
    v({.name = "otherwise", .doc = "the sentence where one does not PASS; empty: none"},
      &Sentence::otherwise);
  }
};

struct Question {
  std::string id;                       ///< G-...
  std::string question;                 ///< ends with a question mark; yes is the wanted answer
  std::vector<std::string> decided_by;  ///< ids of criteria; "C-x.*" for all that begin so
  std::string says;  ///< reason, with {METRIC}; empty: the criterion with the least room
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "G- and a name, unique in the runbook", .required = true},
      &Question::id);
    v({.name = "question", .doc = "yes is the wanted answer", .required = true},
      &Question::question);
    v({.name = "decided_by",
       .doc = "ids of criteria; C-x.* for all that begin so",
       .required = true},
      &Question::decided_by);
    v({.name = "says",
       .doc = "the reason for the answer, with {METRIC}; empty: the criterion with the least room"},
      &Question::says);
  }
};

/// In the command of a runbook's next step: {runbook} is the one that ran, which may extend it.
inline constexpr std::string_view kRunbookName = "runbook";

/// What to do after the run.
struct NextStep {
  std::string text;
  std::string command;              ///< that does it; may be empty
  std::vector<std::string> unless;  ///< left out where all of these PASS; empty: never
  template <class V>
  static void describe(V& v) {
    v({.name = "text", .doc = "what to do", .required = true}, &NextStep::text);
    v({.name = "command", .doc = "the command that does it; {runbook} is the one that ran"},
      &NextStep::command);
    v({.name = "unless",
       .doc = "criteria; where all PASS the step is left out; C-x.* for all that begin so"},
      &NextStep::unless);
  }
};

}  // namespace harness
