#pragma once
#include <string_view>

namespace base {

/// One member of a described struct (harness/schema/field.h).
struct FieldDoc {
  std::string_view name;  ///< key in JSON
  std::string_view doc;   ///< one sentence, shown in the JSON Schema and on the reference page
  std::string_view unit =
      "";                 ///< unit of a number, from the closed list of spec units; empty for none
  bool required = false;  ///< the reader rejects an object without this key
  bool brief = false;     ///< the writer leaves the key out where it has its default
  std::string_view before = "";  ///< key in files of earlier versions, which is read as well
};

}  // namespace base
