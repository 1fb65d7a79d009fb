#include "nsa/switches/switches.h"

namespace nsa {
namespace {

std::vector<SwitchInfo> make_registry() {
  using T = SwitchType;
  return {
      {"NSA_SEL_RANGES_V2", T::kBool, "1", "block ids to token ranges by v2; 0 = v1"},
      {"NSA_USE_SEL_PACK", T::kBool, "0", "selected attention by rows bucketed by length", "", 0,
       true},
      {"NSA_USE_SEL_VARLEN", T::kBool, "0", "selected attention by one packed varlen call", "", 0,
       true},
      {"NSA_USE_SEL_MASK", T::kBool, "0", "selected attention by dense SDPA and a mask", "", 0,
       true},
      {"NSA_FORCE_SEL_MASK", T::kBool, "0", "masked selected attention whatever else is set"},
      {"NSA_FORCE_PARITY", T::kBool, "0", "plain reference-grade operators everywhere"},
      {"NSA_PREFILL_BATCHED", T::kBool, "1", "batched prefill; 0 = sequential"},
      {"NSA_USE_FA2", T::kBool, "0", "flash attention of the library wherever it fits"},
      {"NSA_USE_FA2_WIN", T::kBool, "0", "flash attention for the window branch"},
      {"NSA_USE_FA2_CMP", T::kBool, "0", "flash attention for the compressed branch"},
      {"NSA_TRAIN_SAFE_PACK", T::kBool, "1", "packed uses its safe variant under autograd"},
      {"NSA_KERNELS", T::kChoice, "auto",
       "code of backend fused: the best of the card, or that of sm_80 on any card", "auto|sm80"},
      {"NSA_STRICT_ASSERTS", T::kBool, "0",
       "recompute a non-finite branch by gather; causality asserts"},
      {"NSA_SDPA_AUDIT", T::kBool, "0", "record every SDPA and flash call with shapes"},
      {"NSA_NVTX", T::kBool, "1", "name the stages for profilers by NVTX ranges"},
      {"NSA_BATCH_SIZE", T::kInt, "", "training: sequences a step and rank", "", 1},
      {"NSA_ACCUM", T::kInt, "", "training: micro-batches added up before a step", "", 1},
      {"NSA_SEQ_LEN", T::kInt, "", "training: tokens of a sequence", "", 1},
      {"NSA_DDP_COMPRESS", T::kChoice, "none", "gradient compression between ranks", "none|bf16"},
      {"NSA_DDP_BUCKET_MB", T::kInt, "25", "cap of a gradient bucket in MiB", "", 1},
      {"NSA_FWE_DOC_BATCH", T::kInt, "64", "loader: documents a read", "", 1},
      {"NSA_FWE_PREFETCH", T::kBool, "1", "loader: read ahead in a thread"},
      {"NSA_FWE_Q", T::kInt, "4", "loader: length of the queue", "", 1},
      {"NSA_FWE_WARMUP_BATCHES", T::kInt, "8", "loader: batches read before the first step", "", 0},
      {"NSA_FWE_WARMUP_TIMEOUT", T::kInt, "30", "loader: seconds the warm-up may take", "", 0},
      {"NSA_CASES_DIR", T::kText, "", "programs: folder of additional safetensors cases"},
  };
}

}  // namespace

const std::vector<SwitchInfo>& switch_registry() {
  static const std::vector<SwitchInfo> registry = make_registry();
  return registry;
}

}  // namespace nsa
