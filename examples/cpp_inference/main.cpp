// Runs a package of AOTInductor that calls the attention operator; no Python. Usage: inference
// PACKAGE.pt2
#include <ATen/ATen.h>
#include <nsa/nsa.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: inference PACKAGE.pt2\n");
    return 2;
  }
  std::printf("libnsa %s\n", nsa::version().c_str());  // links the library with the operators
  torch::inductor::AOTIModelPackageLoader model(words[1]);
  const at::Tensor y = model.run({at::ones({2, 128, 64})}).at(0);
  std::printf("the sum of its output is %.4f\n", y.sum().item<double>());
  return y.isfinite().all().item<bool>() ? 0 : 1;
}
