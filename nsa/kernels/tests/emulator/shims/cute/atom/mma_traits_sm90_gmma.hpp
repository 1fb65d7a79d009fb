// CuTe's file, and how a product of a warpgroup is done here.
#pragma once
#include_next <cute/atom/mma_traits_sm90_gmma.hpp>

#include "nsa/kernels/tests/emulator/sm90/wgmma.h"

namespace cute::SM90::GMMA {

/// Whether the operands of an instruction are MN-major.
template <class Op>
struct MajorsOf;
template <template <Major, Major, ScaleIn, ScaleIn> class Op, Major kA, Major kB>
struct MajorsOf<Op<kA, kB, ScaleIn::One, ScaleIn::One>> {
  static constexpr bool kAByColumns = kA == Major::MN, kBByRows = kB == Major::MN;
};

/// Preferred to CuTe's, as it is constrained.
template <class Op, class... Args, class TD, class DLayout, class TA, class ALayout, class TB,
          class BLayout, class TC, class CLayout>
  requires(sizeof(Op) > 0)
constexpr void mma_unpack(const MMA_Traits<Op, Args...>& traits, Tensor<TD, DLayout>& d,
                          const Tensor<TA, ALayout>& a, const Tensor<TB, BLayout>& b,
                          const Tensor<TC, CLayout>&) {
  using Traits = MMA_Traits<Op, Args...>;
  using Value = typename Traits::ValTypeA;
  constexpr bool kHalf = std::is_same_v<Value, half_t>;
  static_assert(kHalf || std::is_same_v<Value, bfloat16_t>);
  static_assert(std::is_same_v<Value, typename Traits::ValTypeB>);
  static_assert(std::is_same_v<float, typename Traits::ValTypeD>);
  constexpr int kColumns = size<1>(typename Traits::Shape_MNK{});
  nsa::kernels::emulator::WarpgroupProduct product{};
  product.columns = kColumns, product.half = kHalf;
  product.a_by_columns = MajorsOf<Op>::kAByColumns, product.b_by_rows = MajorsOf<Op>::kBByRows;
  product.accumulates = traits.accumulate_ == ScaleOut::One;
  Tensor values = recast<float>(d);
  static_assert(decltype(size(values))::value == kColumns / 2);
  product.d = &values(0);
  if constexpr (std::is_same_v<typename Op::ARegisters, uint64_t[1]>) {
    product.a = recast<uint64_t>(a)(0);
  } else {
    Tensor registers = recast<uint32_t>(a);
    static_assert(decltype(size(registers))::value == 4);
    product.a_in_registers = true, product.a_registers = &registers(0);
    if (&registers(3) != &registers(0) + 3) nsa::kernels::emulator::fail("registers lie apart");
  }
  if (&values(kColumns / 2 - 1) != &values(0) + kColumns / 2 - 1)
    nsa::kernels::emulator::fail("registers lie apart");
  product.b = recast<uint64_t>(b)(0);
  nsa::kernels::emulator::start_product(product);
}

}  // namespace cute::SM90::GMMA
