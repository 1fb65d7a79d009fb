#pragma once
#include <torch/library.h>

#include <string>

namespace nsa {

/// One kernel for the three operators of a direction, "_fwd" or "_bwd".
template <auto* kernel>
void implement(torch::Library& m, const std::string& direction) {
  for (const char* name : {"attention", "attention_varlen", "attention_qkvpacked"})
    m.impl((name + direction).c_str(), torch::CppFunction::makeFromBoxedFunction<kernel>());
}

}  // namespace nsa
