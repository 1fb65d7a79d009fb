#pragma once
#include "nsa/tensor_file/tensor_file.h"

/// Tensor files carry every case, so their words are words of this folder, too.
namespace suites {
using namespace nsa::tensor_file;
}
