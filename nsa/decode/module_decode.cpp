#include "nsa/decode/module_decode.h"

namespace nsa {

ModuleOutputs prefill(NsaAttentionImpl& module, LayerCache& cache, const at::Tensor& x,
                      const std::vector<int64_t>& lengths) {
  DecodeOutputs attention = cache.prefill(module.project(x), lengths, module.options);
  return {module.project_out(attention.o), attention};
}

ModuleOutputs step(NsaAttentionImpl& module, LayerCache& cache, const at::Tensor& x,
                   const std::optional<std::vector<int64_t>>& sequences) {
  DecodeOutputs attention = cache.step(module.project(x), module.options, sequences);
  return {module.project_out(attention.o), attention};
}

}  // namespace nsa
