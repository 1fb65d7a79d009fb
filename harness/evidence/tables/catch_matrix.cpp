#include "harness/evidence/tables/catch_matrix.h"

#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/error.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr const char* kFile = "catch_matrix.json";
constexpr const char* kSchema = "nsa-catch-matrix/1";
constexpr size_t kIdDigits = 16;

std::string build_of(const json& environment) {
  const json id = environment.value("/build/build_id"_json_pointer, json());
  return id.is_string() ? id.get<std::string>() : "";
}

}  // namespace

std::string catch_matrix_name(const json& environment) {
  const std::string build = build_of(environment);
  return build.empty() ? ""
                       : build.substr(0, kIdDigits) + "-" + hardware_key(environment) + ".json";
}

std::string catch_matrix_file(const Results& results) {
  const std::string build = build_of(results.environment);
  if (build.empty() || !results.tables.is_array()) return "";
  for (const json& table : results.tables)
    if (table.value("id", "") == "selftest.catch_matrix")
      return pretty_dump({{"schema", kSchema},
                          {"build_id", build},
                          {"hw_key", hardware_key(results.environment)},
                          {"run", results.run.id},
                          {"columns", table["columns"]},
                          {"rows", table["rows"]}});
  return "";
}

json catch_matrix_table(const RunFolder& run, const json& environment) {
  if (!run.has(kFile)) return nullptr;
  const json file = run.read_json(kFile);
  const auto text = [&](const char* key) {
    return file.is_object() && file.contains(key) && file[key].is_string()
               ? file[key].get<std::string>()
               : "";
  };
  if (text("schema") != kSchema || !file.contains("columns") || !file.contains("rows"))
    throw EvidenceError(kFile, std::string("is not of schema ") + kSchema);
  if (text("build_id") != build_of(environment) || text("hw_key") != hardware_key(environment))
    throw EvidenceError(kFile, "is of build " + text("build_id") + " on " + text("hw_key") +
                                   ", not of the build and hardware of this run");
  return {{"id", "catch_matrix"},
          {"title", "Self test of this build on this hardware, run " + text("run")},
          {"phase", ""},
          {"columns", file["columns"]},
          {"rows", file["rows"]}};
}

}  // namespace harness
