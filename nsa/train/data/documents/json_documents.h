#pragma once
#include <string>

#include "nsa/train/data/documents/documents.h"
#include "nsa/train/data/documents/text_reader.h"

namespace nsa::train {

/// One object a line. `name` names the file in errors.
DocumentCounts read_json_lines(TextReader& text, const std::string& name, const std::string& field,
                               const TakeDocument& take);

/// An array of objects, one object, or one a line. The text is in memory as a whole.
DocumentCounts read_json(TextReader& text, const std::string& name, const std::string& field,
                         const TakeDocument& take);

}  // namespace nsa::train
