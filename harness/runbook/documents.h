#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

/// Every kind of document the instrument reads or writes, for `nsa-validate schema NAME`.
namespace harness {

struct DocumentKind {
  nlohmann::json schema;  ///< JSON Schema, draft 2020-12
  std::string reference;  ///< Markdown page
};

/// runbook, kind, results, plan, baseline, hardware.
const std::map<std::string, DocumentKind>& documents();

}  // namespace harness
