#pragma once
#include <filesystem>
#include <string>

namespace harness {

/// What an earlier run left and a new one should not meet, by name: processes of a run whose engine
/// is gone ("nsa-worker pid 71 of RUN|PHASE/GROUP"), half-written files and stop files below
/// `runs`. Empty: nothing. Changes nothing.
std::string stale_leftovers(const std::filesystem::path& runs);

}  // namespace harness
