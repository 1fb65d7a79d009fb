#pragma once
#include <filesystem>
#include <string>

namespace harness {

/// What the threads of a process launched last, from the record that it keeps in mapped memory
/// (nsa/diagnostics/stage_record.h: slots of 256 bytes, zero bytes behind the text): "1234:
/// train.step > nsa.gate; 1240: train.backward", printable and of bounded length. Empty when there
/// is no record, or when no thread entered a stage.
std::string last_stage(const std::filesystem::path& record);

}  // namespace harness
