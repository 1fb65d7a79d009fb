#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "harness/evidence/storage/run_folder.h"
#include "harness/results/results.h"

/// What the self test of one build on one kind of machine caught. Runs of the same build and
/// hardware take the newest one along as catch_matrix.json and show it in their appendix.
namespace harness {

/// Name under which a matrix is kept: "BUILD-HARDWARE.json", BUILD the first 16 digits of the id.
/// Empty when the environment names no build.
std::string catch_matrix_name(const nlohmann::json& environment);

/// The file of a finished self test: {schema, build_id, hw_key, run, columns, rows}. Empty when the
/// results hold no matrix or name no build.
std::string catch_matrix_file(const Results& results);

/// The table of catch_matrix.json in a run; null when there is no such file. Throws EvidenceError
/// when it is damaged, or of another build or other hardware than the run.
nlohmann::json catch_matrix_table(const RunFolder& run, const nlohmann::json& environment);

}  // namespace harness
