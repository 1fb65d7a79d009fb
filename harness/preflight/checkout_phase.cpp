// The code under test: is it the code that is named, and are the programs built from it?
#include "harness/phases/builtin_phases.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/build/git.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kShownFiles = 20;

std::string list_text(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShownFiles); ++i)
    text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kShownFiles)
    text += " and " + std::to_string(names.size() - kShownFiles) + " more";
  return text.empty() ? "none" : text;
}

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

/// Facts of the checkout, or of the build where the history is not there.
struct Code {
  BuildIdCheck build;
  GitFacts git;
  std::string commit;  ///< empty: not known
  std::vector<std::string> dirty;
  size_t programs = 0;
};

Code find_code(const fs::path& bin_dir, const std::optional<fs::path>& checkout) {
  Code code;
  code.build = check_build_id(bin_dir, checkout);
  if (checkout) code.git = git_facts(*checkout);
  const auto built = read_build_id(bin_dir);
  if (built) code.programs = built->programs.size();
  if (code.git.known) {
    code.commit = code.git.commit;
    code.dirty = code.git.dirty;
  } else if (built && (code.build.equal || code.build.installed)) {
    code.commit = built->commit;
    code.dirty = built->dirty;
  }
  return code;
}

void emit_table(const std::string& id, const Code& code, const std::string& named,
                base::protocol::Emitter& emitter) {
  json rows = json::array();
  const auto add = [&](const char* fact, const std::string& value) {
    rows.push_back(json::array({fact, value}));
  };
  add("commit", or_unknown(code.commit));
  add("commit asked for", named.empty() ? "none" : named);
  add("branch", or_unknown(code.git.branch));
  add("files that differ from the commit", list_text(code.dirty));
  add("build id of the programs", or_unknown(code.build.built));
  add("build id of the files now", or_unknown(code.build.checkout));
  add("programs checked", std::to_string(code.programs));
  add("programs that are not those of the build", list_text(code.build.differing_programs));
  add("sources changed since the build", list_text(code.build.differing_files));
  emitter.table({.case_id = id,
                 .id = "code",
                 .title = "Code under test",
                 .columns = {"fact", "value"},
                 .rows = rows});
}

}  // namespace

void run_checkout(const fs::path& bin_dir, const std::optional<fs::path>& checkout,
                  const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const std::string named =
      base::protocol::merged_args(call.in, call.in.cases.front()).value("commit", "");
  if (!named.empty() && named.size() < 7)
    return emitter.fail_case(id,
                             "args.commit must have 7 hex digits at least, got '" + named + "'");
  const Code code = find_code(bin_dir, checkout);
  const auto count = [&](const char* name, size_t value) {
    emitter.metric({.case_id = id, .name = name, .value = value, .unit = "count"});
  };
  count("programs.checked_count", code.programs);
  count("programs.differ_count", code.build.differing_programs.size());
  count("sources.differ_count", code.build.differing_files.size());
  const bool as_named = !named.empty() && code.commit.starts_with(named);
  emitter.metric({.case_id = id,
                  .name = "commit.as_named_bool",
                  .value = named.empty() ? json() : json(as_named),
                  .unit = "bool",
                  .reason = "no commit was asked for (--set PHASE.commit=SHA)"});
  if (!named.empty())
    emitter.check({.case_id = id,
                   .id = "checkout.commit",
                   .ok = as_named,
                   .code = as_named ? "" : "PROVENANCE_MISMATCH",
                   .detail = "commit " + named + " was asked for, the code under test is " +
                             or_unknown(code.commit)});
  emit_table(id, code, named, emitter);
  emitter.end_case(id);
}

}  // namespace harness
