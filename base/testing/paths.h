#pragma once
#include <string>

/// Where tests find files: both absolute, without a slash at the end.
namespace base {

const std::string& source_dir();  ///< the checkout
const std::string& build_dir();   ///< the build folder that the test belongs to
const std::string& venv_dir();    ///< the Python environment that tools/setup made

}  // namespace base
