// The product of 64 x 112 columns. CuTe has it among those of all odd sizes
// (mma_sm90_gmma_ext.hpp), which take longer to compile than the kernels that use it.
#pragma once
#include <type_traits>

#include <cute/atom/mma_atom.hpp>

// In CuTe's namespaces: mma_unpack and MMA_Traits are looked for there.
namespace cute::SM90::GMMA {

/// d += a b in fp32: a 64 x 16, b 16 x 112, both in shared memory; T is bfloat16_t or half_t (PTX:
/// wgmma.mma_async.sync.aligned.m64n112k16).
template <typename T, Major kMajorA, Major kMajorB>
struct ProductOf112 {
  using DRegisters = void;
  using ARegisters = uint64_t[1];
  using BRegisters = uint64_t[1];
  using CRegisters = float[56];

  // clang-format off
  CUTE_HOST_DEVICE static void fma(
      const uint64_t& desc_a, const uint64_t& desc_b,
      float& d00, float& d01, float& d02, float& d03, float& d04, float& d05, float& d06,
      float& d07, float& d08, float& d09, float& d10, float& d11, float& d12, float& d13,
      float& d14, float& d15, float& d16, float& d17, float& d18, float& d19, float& d20,
      float& d21, float& d22, float& d23, float& d24, float& d25, float& d26, float& d27,
      float& d28, float& d29, float& d30, float& d31, float& d32, float& d33, float& d34,
      float& d35, float& d36, float& d37, float& d38, float& d39, float& d40, float& d41,
      float& d42, float& d43, float& d44, float& d45, float& d46, float& d47, float& d48,
      float& d49, float& d50, float& d51, float& d52, float& d53, float& d54, float& d55,
      ScaleOut scale_d = ScaleOut::One) {
#ifdef CUTE_ARCH_MMA_SM90A_ENABLED
#define NSA_PRODUCT_OF_112(TYPES)                                                                \
    asm volatile(                                                                                \
      "{\n"                                                                                      \
      ".reg .pred p;\n"                                                                          \
      "setp.ne.b32 p, %58, 0;\n"                                                                 \
      "wgmma.mma_async.sync.aligned.m64n112k16.f32." TYPES " {"                                  \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "              \
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "              \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "              \
      "%47, %48, %49, %50, %51, %52, %53, %54, %55"                                              \
      "}, %56, %57, p, 1, 1, %59, %60;\n"                                                        \
      "}\n"                                                                                      \
        : "+f"(d00), "+f"(d01), "+f"(d02), "+f"(d03), "+f"(d04), "+f"(d05), "+f"(d06),           \
          "+f"(d07), "+f"(d08), "+f"(d09), "+f"(d10), "+f"(d11), "+f"(d12), "+f"(d13),           \
          "+f"(d14), "+f"(d15), "+f"(d16), "+f"(d17), "+f"(d18), "+f"(d19), "+f"(d20),           \
          "+f"(d21), "+f"(d22), "+f"(d23), "+f"(d24), "+f"(d25), "+f"(d26), "+f"(d27),           \
          "+f"(d28), "+f"(d29), "+f"(d30), "+f"(d31), "+f"(d32), "+f"(d33), "+f"(d34),           \
          "+f"(d35), "+f"(d36), "+f"(d37), "+f"(d38), "+f"(d39), "+f"(d40), "+f"(d41),           \
          "+f"(d42), "+f"(d43), "+f"(d44), "+f"(d45), "+f"(d46), "+f"(d47), "+f"(d48),           \
          "+f"(d49), "+f"(d50), "+f"(d51), "+f"(d52), "+f"(d53), "+f"(d54), "+f"(d55)            \
        : "l"(desc_a), "l"(desc_b), "r"(int32_t(scale_d)), "n"(int32_t(kMajorA)),                \
          "n"(int32_t(kMajorB)))
    if constexpr (std::is_same_v<T, bfloat16_t>) {
      NSA_PRODUCT_OF_112("bf16.bf16");
    } else {
      NSA_PRODUCT_OF_112("f16.f16");
    }
#undef NSA_PRODUCT_OF_112
#else
    CUTE_INVALID_CONTROL_PATH("ProductOf112 needs code for sm_90a");
#endif
  }
  // clang-format on
};

template <Major kMajorA, Major kMajorB, ScaleIn, ScaleIn>
struct ProductOf112Bf16 : ProductOf112<bfloat16_t, kMajorA, kMajorB> {};
template <Major kMajorA, Major kMajorB, ScaleIn, ScaleIn>
struct ProductOf112Fp16 : ProductOf112<half_t, kMajorA, kMajorB> {};

}  // namespace cute::SM90::GMMA

namespace cute {

template <typename T, GMMA::Major kMajorA, GMMA::Major kMajorB>
struct TraitsOf112 {
  using ValTypeD = float;
  using ValTypeA = T;
  using ValTypeB = T;
  using ValTypeC = float;
  using FrgTypeA = GMMA::smem_desc<kMajorA>;
  using FrgTypeB = GMMA::smem_desc<kMajorB>;
  using Shape_MNK = Shape<_64, Int<112>, _16>;
  using ThrID = Layout<_128>;
  using ALayout = GMMA::ABLayout<64, 16>;
  using BLayout = GMMA::ABLayout<112, 16>;
  using CLayout = GMMA::CLayout_64xN<112>;

  GMMA::ScaleOut accumulate_ = GMMA::ScaleOut::One;
};
template <GMMA::Major kMajorA, GMMA::Major kMajorB, GMMA::ScaleIn kScaleA, GMMA::ScaleIn kScaleB>
struct MMA_Traits<SM90::GMMA::ProductOf112Bf16<kMajorA, kMajorB, kScaleA, kScaleB>>
    : TraitsOf112<bfloat16_t, kMajorA, kMajorB> {};
template <GMMA::Major kMajorA, GMMA::Major kMajorB, GMMA::ScaleIn kScaleA, GMMA::ScaleIn kScaleB>
struct MMA_Traits<SM90::GMMA::ProductOf112Fp16<kMajorA, kMajorB, kScaleA, kScaleB>>
    : TraitsOf112<half_t, kMajorA, kMajorB> {};

}  // namespace cute

namespace nsa::kernels::sm90 {

/// The instruction of 64 x N products of K-major operands in shared memory.
template <typename T, int N>
constexpr auto product_of_columns() {
  using namespace cute;
  constexpr auto kMajor = GMMA::Major::K;
  constexpr auto kOne = GMMA::ScaleIn::One;
  if constexpr (N != 112)
    return GMMA::ss_op_selector<T, T, float, Shape<_64, Int<N>, _64>>();
  else if constexpr (std::is_same_v<T, bfloat16_t>)
    return SM90::GMMA::ProductOf112Bf16<kMajor, kMajor, kOne, kOne>{};
  else
    return SM90::GMMA::ProductOf112Fp16<kMajor, kMajor, kOne, kOne>{};
}

}  // namespace nsa::kernels::sm90
