#pragma once
#include <nlohmann/json.hpp>
#include <random>
#include <string>

/// Seeded damage to documents, for tests of readers.
namespace harness {

using Random = std::mt19937_64;

/// Replaces, removes, copies or adds one value somewhere in `document`.
void change_value(nlohmann::json& document, Random& random);

/// Flips, removes, inserts, repeats or cuts bytes of `text`.
void change_bytes(std::string& text, Random& random);

}  // namespace harness
