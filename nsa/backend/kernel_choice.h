#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

/// Which kernel of the project runs a call on a card, as a pure function of both.
namespace nsa {

/// Code that a build holds. Machine code for sm_80 runs on every 8.x, that for sm_90a on 9.0 only;
/// PTX of sm_80 is compiled by the driver of any later card at the first launch of a kernel.
struct MachineCode {
  bool sm80 = false, sm90a = false;
  bool sm80_ptx = false;
};
/// From architectures as CMake names them, such as "80 90a-real": "80" is machine code and PTX.
MachineCode machine_code_of(const std::string& architectures);

/// What the choice depends on of a device and of the build.
struct CardFacts {
  bool build_has_kernels = false;
  bool is_cuda = false;
  int major = 0, minor = 0;  ///< compute capability
  size_t shared_bytes = 0;   ///< that a block of threads may have where it asks for them
  MachineCode machine_code;
  bool compiles_ptx = false;  ///< the driver is not older than the compiler of the build
};

/// Kernels that have the same codes.
enum class KernelFamily {
  kInterval,      ///< window and compressed branch, forward and backward
  kSelectedRows,  ///< selected branch in the order of rows, forward
  kSelectedKeys,  ///< selected branch in the order of keys: backward, with sm_90 also forward
  kDecodeStep,    ///< a decode step as one launch
  kIndex,         ///< choice of blocks by an index
  kTokens,        ///< rotation, pooling, gated sum, gate MLP, norms, SwiGLU
};

/// What the choice depends on of a call.
struct KernelCall {
  KernelFamily family = KernelFamily::kTokens;
  bool sixteen_bits = true;                 ///< of type bfloat16 or half
  int64_t qk_head_dim = 0, v_head_dim = 0;  ///< of the caller's tensors
  int64_t group_size = 1;                   ///< query heads of a KV head
  bool selects = false;                     ///< with the choice of blocks (kInterval)
  bool wide_lists = false;                  ///< kernels::SelectionSizes::wide_lists
  int64_t num_keys = 0;                     ///< (kSelectedKeys)
};

/// The code of a kernel. kSm80 is mma.sync and cp.async and is compiled for 9.0 as well; families
/// without code for wgmma have this one only.
enum class KernelCode { kNone, kSm80, kSm90 };

struct KernelChoice {
  KernelCode code = KernelCode::kNone;
  std::string obstacle;  ///< why no kernel runs; empty where one does
  /// For the record, joined by ", ": "sm_80" of a family that has two codes; "from PTX", compiled
  /// by the driver; "padded to 128/128", head dims that are computed instead of the call's.
  std::string detail;

  bool runs() const { return code != KernelCode::kNone; }
  /// The same choice, or none where `reason` is neither null nor empty.
  KernelChoice unless(const std::string& reason) const;
  KernelChoice unless(const char* reason) const;
};

/// Branches with other head dims than kernels have are computed with the next larger ones
/// (kernels::computed_head_dims). `wanted_code`: "auto", the best that the card has, or "sm80"
/// (switch NSA_KERNELS). Sizes that no kernel takes are the launcher's to name: see
/// KernelChoice::unless.
KernelChoice choose_kernel(const KernelCall& call, const CardFacts& card,
                           const std::string& wanted_code);

/// Shared memory that a block of threads of the code of sm_80 asks for in this call, in the pass
/// that asks for most; 0 where all cards have it.
size_t sm80_shared_bytes(const KernelCall& call);
/// Empty where a card that has `has` bytes runs a kernel that asks for `asked`; else why not.
std::string shared_memory_obstacle(size_t asked, size_t has);

}  // namespace nsa
