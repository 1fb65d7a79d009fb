// Files travel both ways between this reader and writer and the format's own Python package.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "nsa/tensor_file/tensor_file.h"

namespace nsa::tensor_file {
namespace {

std::string temp(const std::string& name) { return ::testing::TempDir() + "interop_" + name; }

/// Exit status of the script with the two paths as arguments; its output goes to the test's log.
int run_python(const std::string& script, const std::string& in, const std::string& out) {
  const std::string file = temp("script.py");
  std::ofstream(file) << script;
  const std::string command =
      std::string(NSA_PYTHON) + " -I '" + file + "' '" + in + "' '" + out + "'";
  return std::system(command.c_str());
}

TensorFile sample() {
  TensorFile file;
  file.metadata["config"] = R"({"kind": "forward"})";
  file.tensors["f64"] = from_doubles({2, 2}, {1.5, -2.25, 1e300, 0.1}, Dtype::kF64);
  file.tensors["f32"] = from_doubles({3}, {0.1, 2, 3}, Dtype::kF32);
  file.tensors["f16"] = from_doubles({3}, {0.1, 65504, -1}, Dtype::kF16);
  file.tensors["bf16"] = from_doubles({3}, {0.1, 3e38, -1}, Dtype::kBF16);
  file.tensors["i64"] = from_integers({2}, {INT64_MAX, -1}, Dtype::kI64);
  file.tensors["i32"] = from_integers({2}, {INT32_MIN, 5}, Dtype::kI32);
  file.tensors["u8"] = from_doubles({1, 3}, {0, 7, 255}, Dtype::kU8);
  file.tensors["flags"] = from_doubles({3}, {1, 0, 1}, Dtype::kBool);
  file.tensors["none"] = from_doubles({0, 4}, {}, Dtype::kF64);
  return file;
}

TEST(TensorFilePython, PythonReadsWrittenFiles) {
  const std::string path = temp("ours.safetensors");
  write_tensor_file(path, sample());
  const char* script = R"(
import sys, numpy as np
from safetensors import safe_open, deserialize
with safe_open(sys.argv[1], "np") as f:
    assert f.metadata() == {"config": '{"kind": "forward"}'}, f.metadata()
    get = f.get_tensor
    assert (get("f64") == np.array([[1.5, -2.25], [1e300, 0.1]])).all()
    assert (get("f32") == np.array([0.1, 2, 3], np.float32)).all()
    assert (get("f16") == np.array([0.1, 65504, -1], np.float16)).all()
    assert (get("i64") == np.array([2**63 - 1, -1])).all()
    assert (get("i32") == np.array([-2**31, 5], np.int32)).all()
    assert (get("u8") == np.array([[0, 7, 255]], np.uint8)).all()
    assert (get("flags") == np.array([True, False, True])).all()
    assert get("none").shape == (0, 4)
raw = dict(deserialize(open(sys.argv[1], "rb").read()))
assert raw["bf16"]["dtype"] in ("BF16", "bfloat16"), raw["bf16"]["dtype"]
assert bytes(raw["bf16"]["data"]) == bytes.fromhex("cd3d627f80bf"), bytes(raw["bf16"]["data"]).hex()
)";
  EXPECT_EQ(run_python(script, path, path), 0);
}

TEST(TensorFilePython, ReadsFilesOfPython) {
  const std::string ours = temp("ours2.safetensors"), theirs = temp("theirs.safetensors");
  write_tensor_file(ours, sample());
  const char* script = R"(
import sys, numpy as np
from safetensors import TensorSpec, deserialize, serialize_file
tensors, alive = {}, []
for name, t in deserialize(open(sys.argv[1], "rb").read()):
    dtype = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
             "I32": "int32", "U8": "uint8", "BOOL": "bool"}.get(t["dtype"], t["dtype"])
    alive.append(np.frombuffer(bytes(t["data"]), np.uint8).copy())
    tensors[name] = TensorSpec(dtype=dtype, shape=t["shape"], data_ptr=alive[-1].ctypes.data,
                               data_len=alive[-1].nbytes)
serialize_file(tensors, sys.argv[2], {"config": '{"kind": "forward"}'})
)";
  ASSERT_EQ(run_python(script, ours, theirs), 0);
  const TensorFile want = sample(), have = read_tensor_file(theirs);
  EXPECT_EQ(have.metadata, want.metadata);
  ASSERT_EQ(have.tensors.size(), want.tensors.size());
  for (const auto& [name, tensor] : want.tensors) {
    EXPECT_EQ(have.tensors.at(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(have.tensors.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(have.tensors.at(name).bytes, tensor.bytes) << name;
  }
}

}  // namespace
}  // namespace nsa::tensor_file
