// Which kernel runs on which card, by the facts of the cards; no card is asked.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <tuple>

#include "nsa/backend/branch_choice.h"
#include "nsa/backend/kernel_choice.h"
#include "nsa/backend/known_cards.h"
#include "nsa/kernels/common/size_limits.h"

namespace nsa {

namespace kernels {
void PrintTo(const HeadDims& dims, std::ostream* out) { *out << dims.qk << "/" << dims.v; }
}  // namespace kernels

void PrintTo(KernelCode code, std::ostream* out) {
  *out << (code == KernelCode::kNone ? "none" : code == KernelCode::kSm80 ? "sm80" : "sm90");
}

namespace {

constexpr KernelFamily kFamilies[] = {KernelFamily::kInterval,     KernelFamily::kSelectedRows,
                                      KernelFamily::kSelectedKeys, KernelFamily::kDecodeStep,
                                      KernelFamily::kIndex,        KernelFamily::kTokens};
constexpr int kDims[][2] = {{64, 64}, {128, 128}, {192, 128}};
constexpr const char* kWanted[] = {"auto", "sm80"};

KernelCall call(KernelFamily family, int qk_head_dim, int v_head_dim) {
  return {.family = family,
          .qk_head_dim = qk_head_dim,
          .v_head_dim = v_head_dim,
          .group_size = 16,
          .selects = family == KernelFamily::kInterval,
          .num_keys = 65536};
}

bool has_two_codes(KernelFamily family) {
  return family == KernelFamily::kInterval || family == KernelFamily::kSelectedKeys;
}

void expect_choice(const KernelChoice& have, KernelCode code, const std::string& obstacle,
                   const std::string& detail) {
  EXPECT_EQ(have.code, code);
  EXPECT_EQ(have.obstacle, obstacle);
  EXPECT_EQ(have.detail, detail);
  EXPECT_EQ(have.runs(), code != KernelCode::kNone);
  EXPECT_EQ(have.runs(), have.obstacle.empty());
}

/// Every family, all dims and both wanted codes have `obstacle`.
void expect_none(const CardFacts& card, const std::string& obstacle) {
  for (const KernelFamily family : kFamilies)
    for (const auto& [dk, dv] : kDims)
      for (const char* wanted : kWanted)
        expect_choice(choose_kernel(call(family, dk, dv), card, wanted), KernelCode::kNone,
                      obstacle, "");
}

TEST(ChooseKernel, A100RunsTheCodeOfSm80) {
  for (const KernelFamily family : kFamilies)
    for (const auto& [dk, dv] : kDims)
      for (const char* wanted : kWanted)
        expect_choice(choose_kernel(call(family, dk, dv), kA100, wanted), KernelCode::kSm80, "",
                      has_two_codes(family) ? "sm_80" : "");
}

TEST(ChooseKernel, H100RunsTheCodeOfSm90WhereThereIsOne) {
  for (const KernelFamily family : kFamilies)
    for (const auto& [dk, dv] : kDims) {
      const bool two = has_two_codes(family);
      expect_choice(choose_kernel(call(family, dk, dv), kH100, "auto"),
                    two ? KernelCode::kSm90 : KernelCode::kSm80, "", "");
      expect_choice(choose_kernel(call(family, dk, dv), kH100, "sm80"), KernelCode::kSm80, "",
                    two ? "sm_80" : "");
    }
}

/// Their machine code is that of sm_80, their shared memory is 99 KB.
TEST(ChooseKernel, CardsWith99KilobytesRunWhatFits) {
  const auto obstacle = [](const std::string& kilobytes) {
    return "the kernels take up to " + kilobytes + " KB of shared memory a block, this card has 99";
  };
  for (const CardFacts& card : {kRtx30, kRtx40})
    for (const char* wanted : kWanted) {
      const auto choose = [&](KernelFamily family, int dk, int dv) {
        return choose_kernel(call(family, dk, dv), card, wanted);
      };
      for (const auto& [dk, dv] : kDims) {
        expect_choice(choose(KernelFamily::kInterval, dk, dv), KernelCode::kSm80, "", "sm_80");
        expect_choice(choose(KernelFamily::kDecodeStep, dk, dv), KernelCode::kSm80, "", "");
        expect_choice(choose(KernelFamily::kTokens, dk, dv), KernelCode::kSm80, "", "");
      }
      expect_choice(choose(KernelFamily::kSelectedRows, 64, 64), KernelCode::kSm80, "", "");
      expect_choice(choose(KernelFamily::kSelectedKeys, 64, 64), KernelCode::kSm80, "", "sm_80");
      expect_choice(choose(KernelFamily::kSelectedRows, 128, 128), KernelCode::kNone,
                    obstacle("112"), "");
      expect_choice(choose(KernelFamily::kSelectedKeys, 128, 128), KernelCode::kNone,
                    obstacle("148"), "");
      expect_choice(choose(KernelFamily::kSelectedRows, 192, 128), KernelCode::kNone,
                    obstacle("104"), "");
      expect_choice(choose(KernelFamily::kSelectedKeys, 192, 128), KernelCode::kNone,
                    obstacle("139"), "");
    }
}

/// Their driver compiles the code of sm_80; the record names that.
TEST(ChooseKernel, LaterCardsRunTheCodeOfSm80FromPtx) {
  for (const CardFacts& card : {kB200, kB300})
    for (const KernelFamily family : kFamilies)
      for (const auto& [dk, dv] : kDims)
        for (const char* wanted : kWanted)
          expect_choice(choose_kernel(call(family, dk, dv), card, wanted), KernelCode::kSm80, "",
                        has_two_codes(family) ? "sm_80, from PTX" : "from PTX");
  expect_choice(choose_kernel(call(KernelFamily::kInterval, 192, 128), kRtx50, "auto"),
                KernelCode::kSm80, "", "sm_80, from PTX");
  expect_choice(choose_kernel(call(KernelFamily::kSelectedKeys, 32, 32), kRtx50, "auto"),
                KernelCode::kSm80, "", "sm_80, from PTX, padded to 64/64");
  expect_choice(choose_kernel(call(KernelFamily::kSelectedKeys, 192, 128), kRtx50, "auto"),
                KernelCode::kNone,
                "the kernels take up to 139 KB of shared memory a block, this card has 99", "");
}

/// A launch would end with "no kernel image is available" or with "unsupported PTX version".
TEST(ChooseKernel, CardsWithoutCodeRunNone) {
  CardFacts b200 = kB200;
  b200.compiles_ptx = false;
  expect_none(b200,
              "on compute capability 10.0 the kernel is compiled from PTX, for which the driver is "
              "too old");
  const std::string built = "the kernel is built for compute capability ";
  b200.machine_code = machine_code_of("80-real 90a-real");
  expect_none(b200, built + "8.x, 9.0, this card has 10.0");
  expect_none(known_card(7, 5, 65536), built + "8.x, 9.0, 10.0 and later, this card has 7.5");
}

/// Whatever runs finds the shared memory that it asks for.
TEST(ChooseKernel, NoCodeAsksForMoreSharedMemoryThanTheCardHas) {
  int ran = 0;
  for (const CardFacts& card : {kA100, kRtx30, kRtx40, kH100, kB200, kB300, kRtx50})
    for (const KernelFamily family : kFamilies)
      for (const auto& [dk, dv] : kDims)
        for (const int64_t group : {1, 2, 16, 64})
          for (const int64_t keys : {int64_t{64}, int64_t{1} << 20, int64_t{1} << 24}) {
            KernelCall one = call(family, dk, dv);
            one.group_size = group, one.num_keys = keys;
            if (choose_kernel(one, card, "sm80").runs()) {
              EXPECT_LE(sm80_shared_bytes(one), card.shared_bytes);
              ++ran;
            }
          }
  EXPECT_GT(ran, 900);
}

TEST(ChooseKernel, ABuildForOneArchitectureRunsThereOnly) {
  CardFacts a100 = kA100, h100 = kH100;
  a100.machine_code = h100.machine_code = machine_code_of("90a-real");
  expect_none(a100, "the kernel is built for compute capability 9.0, this card has 8.0");
  EXPECT_EQ(choose_kernel(call(KernelFamily::kInterval, 64, 64), h100, "auto").code,
            KernelCode::kSm90);
  a100.machine_code = h100.machine_code = machine_code_of("80-real");
  expect_none(h100, "the kernel is built for compute capability 8.x, this card has 9.0");
  h100.machine_code = machine_code_of("80");
  expect_none(h100,
              "the kernel is built for compute capability 8.x, 10.0 and later, this card has 9.0");
  EXPECT_EQ(choose_kernel(call(KernelFamily::kInterval, 64, 64), a100, "auto").code,
            KernelCode::kSm80);
}

TEST(ChooseKernel, ListsOfArchitecturesAreRead) {
  const auto read = [](const char* list) {
    const MachineCode code = machine_code_of(list);
    return std::tuple(code.sm80, code.sm90a, code.sm80_ptx);
  };
  EXPECT_EQ(read("80-real 90a-real"), std::tuple(true, true, false));
  EXPECT_EQ(read("80 90a-real"), std::tuple(true, true, true));
  EXPECT_EQ(read("90a 80"), std::tuple(true, true, true));
  EXPECT_EQ(read("80-virtual 90-real"), std::tuple(false, false, true));
  EXPECT_EQ(read("86-real"), std::tuple(false, false, false));
  EXPECT_EQ(read(""), std::tuple(false, false, false));
}

TEST(ChooseKernel, NoGpuRunsNone) {
  CardFacts cpu = kH100;
  cpu.is_cuda = false;
  expect_none(cpu, "the kernel runs on CUDA only");
}

TEST(ChooseKernel, ABuildWithoutCudaCodeRunsNone) {
  CardFacts h100 = kH100;
  h100.build_has_kernels = false;
  expect_none(h100, "this build has no CUDA code");
  expect_none({}, "this build has no CUDA code");
}

TEST(ChooseKernel, OtherTypesRunNone) {
  for (const CardFacts& card : {kA100, kRtx30, kH100, kRtx50})
    for (const KernelFamily family : kFamilies) {
      KernelCall single = call(family, 128, 128);
      single.sixteen_bits = false;
      expect_choice(choose_kernel(single, card, "auto"), KernelCode::kNone,
                    "the kernel takes bfloat16 and half only", "");
    }
}

/// The lists of the chosen blocks are longest where a token has one row of a tile.
TEST(ChooseKernel, BlockSelectionCountsItsLists) {
  KernelCall select = call(KernelFamily::kInterval, 192, 128);
  select.group_size = 1;
  EXPECT_EQ(sm80_shared_bytes(select), 100352u);
  EXPECT_TRUE(choose_kernel(select, kRtx30, "auto").runs());
  select.selects = false;
  EXPECT_EQ(sm80_shared_bytes(select), 82432u);
}

/// The counters of the tiles of keys lie in shared memory, too.
TEST(ChooseKernel, ALongSequenceNeedsMoreForItsIndex) {
  KernelCall keys = call(KernelFamily::kSelectedKeys, 64, 64);
  keys.num_keys = 101376 / 4 * 64;
  EXPECT_TRUE(choose_kernel(keys, kRtx30, "auto").runs());
  ++keys.num_keys;
  EXPECT_EQ(choose_kernel(keys, kRtx30, "auto").obstacle,
            "the kernels take up to 100 KB of shared memory a block, this card has 99");
  EXPECT_TRUE(choose_kernel(keys, kH100, "auto").runs());
}

/// Other head dims are computed in the next larger ones that have a kernel, and need what those do.
TEST(ChooseKernel, OtherHeadDimsArePadded) {
  using kernels::computed_head_dims;
  using kernels::HeadDims;
  EXPECT_EQ(computed_head_dims(96, 96), (HeadDims{128, 128}));
  EXPECT_EQ(computed_head_dims(80, 32), (HeadDims{128, 128}));
  EXPECT_EQ(computed_head_dims(32, 32), (HeadDims{64, 64}));
  EXPECT_EQ(computed_head_dims(24, 64), (HeadDims{64, 64}));
  EXPECT_EQ(computed_head_dims(23, 64), (HeadDims{23, 64})) << "too small to be padded";
  EXPECT_EQ(computed_head_dims(64, 65), (HeadDims{128, 128}));
  EXPECT_EQ(computed_head_dims(129, 96), (HeadDims{192, 128}));
  for (const auto& [dk, dv] : kDims) EXPECT_EQ(computed_head_dims(dk, dv), (HeadDims{dk, dv}));
  EXPECT_EQ(computed_head_dims(193, 64), (HeadDims{256, 256}));
  EXPECT_EQ(computed_head_dims(64, 129), (HeadDims{256, 256}));
  EXPECT_EQ(computed_head_dims(257, 64), (HeadDims{257, 64}));
  EXPECT_EQ(computed_head_dims(0, 0), (HeadDims{0, 0}));
  for (const KernelFamily family : {KernelFamily::kInterval, KernelFamily::kSelectedKeys}) {
    expect_choice(choose_kernel(call(family, 96, 96), kH100, "auto"), KernelCode::kSm90, "",
                  "padded to 128/128");
    expect_choice(choose_kernel(call(family, 96, 96), kA100, "auto"), KernelCode::kSm80, "",
                  "sm_80, padded to 128/128");
    expect_choice(choose_kernel(call(family, 48, 32), kRtx40, "auto"), KernelCode::kSm80, "",
                  "sm_80, padded to 64/64");
  }
  expect_choice(choose_kernel(call(KernelFamily::kSelectedRows, 96, 96), kA100, "auto"),
                KernelCode::kSm80, "", "padded to 128/128");
  expect_choice(choose_kernel(call(KernelFamily::kSelectedRows, 96, 96), kRtx40, "auto"),
                KernelCode::kNone,
                "the kernels take up to 112 KB of shared memory a block, this card has 99", "");
  // A decode step reads its caches in place, and what goes by tokens takes any dims.
  for (const KernelFamily family : {KernelFamily::kDecodeStep, KernelFamily::kTokens})
    EXPECT_EQ(choose_kernel(call(family, 96, 96), kH100, "auto").detail, "");
}

/// Their products have no code of wgmma: a card of 9.0 runs that of sm_80, and what has less shared
/// memory than their gradients ask for runs none.
TEST(ChooseKernel, HeadDimsOf256HaveCodeOfSm80) {
  for (const KernelFamily family : {KernelFamily::kInterval, KernelFamily::kSelectedKeys}) {
    for (const CardFacts& card : {kH100, kA100})
      expect_choice(choose_kernel(call(family, 256, 256), card, "auto"), KernelCode::kSm80, "",
                    "sm_80");
    expect_choice(choose_kernel(call(family, 200, 136), kH100, "auto"), KernelCode::kSm80, "",
                  "sm_80, padded to 256/256");
  }
  expect_choice(choose_kernel(call(KernelFamily::kInterval, 256, 256), kRtx40, "auto"),
                KernelCode::kNone,
                "the kernels take up to 129 KB of shared memory a block, this card has 99", "");
}

/// Sizes that no kernel takes are named by the launcher, not by a lack of memory.
TEST(ChooseKernel, UnknownHeadDimsAskForNoMemory) {
  for (const KernelFamily family : kFamilies) {
    KernelCall other = call(family, 320, 320);
    other.num_keys = 64;
    if (family == KernelFamily::kIndex)
      EXPECT_EQ(sm80_shared_bytes(other), 98304u) << "heads of an index are no heads of a call";
    else
      EXPECT_LE(sm80_shared_bytes(other), 4u);
    const KernelChoice chosen = choose_kernel(other, kRtx40, "auto");
    EXPECT_TRUE(chosen.runs());
    expect_choice(chosen.unless("head dims"), KernelCode::kNone, "head dims", "");
    expect_choice(chosen.unless(nullptr), chosen.code, "", chosen.detail);
    expect_choice(chosen.unless(std::string()), chosen.code, "", chosen.detail);
  }
  CardFacts old_driver = kB200;
  old_driver.compiles_ptx = false;
  const KernelChoice none = choose_kernel(call(KernelFamily::kTokens, 64, 64), old_driver, "auto");
  EXPECT_EQ(none.unless("head dims").obstacle, none.obstacle);
}

/// The paper's call: 64 heads, 4 KV heads.
WholeCall paper_call() {
  return {.num_heads = 64, .num_kv_heads = 4, .qk_head_dim = 192, .v_head_dim = 128};
}

TEST(ChooseBranches, TheWholeCallHasKernelsWhereEveryBranchHas) {
  const BranchChoices h100 = choose_branches(paper_call(), kH100, "auto");
  for (const KernelChoice& branch : {h100.compressed, h100.window, h100.selected})
    expect_choice(branch, KernelCode::kSm90, "", "");
  const BranchChoices rtx40 = choose_branches(paper_call(), kRtx40, "auto");
  EXPECT_EQ(rtx40.compressed.code, KernelCode::kSm80);
  EXPECT_EQ(rtx40.window.code, KernelCode::kSm80);
  expect_choice(rtx40.selected, KernelCode::kNone,
                "the kernels take up to 104 KB of shared memory a block, this card has 99", "");
}

/// Longer lists of blocks have code of sm_80 alone; the other branches keep theirs.
TEST(ChooseBranches, WideSelectionsAreChosenByCodeOfSm80) {
  for (const auto& [top_n, block_size, group] :
       {std::tuple{33, 32, 16}, {64, 128, 16}, {16, 80, 16}, {16, 32, 17}, {16, 32, 64}}) {
    WholeCall call = paper_call();
    call.top_n = top_n, call.block_size = block_size, call.num_heads = 4 * group;
    const BranchChoices chosen = choose_branches(call, kH100, "auto");
    expect_choice(chosen.compressed, KernelCode::kSm80, "", "sm_80");
    expect_choice(chosen.window, KernelCode::kSm90, "", "");
    expect_choice(chosen.selected, KernelCode::kSm90, "", "");
  }
}

TEST(ChooseBranches, LimitsOfTheLaunchersAreNamed) {
  WholeCall call = paper_call();
  call.num_heads = 4 * 80;
  BranchChoices chosen = choose_branches(call, kH100, "auto");
  EXPECT_EQ(chosen.compressed.obstacle, "block selection with more than 64 query heads a KV head");
  EXPECT_TRUE(chosen.selected.runs()) << "each group in five: " << chosen.selected.obstacle;
  EXPECT_TRUE(chosen.window.runs());
  call = paper_call();
  call.top_n = 65;
  chosen = choose_branches(call, kH100, "auto");
  EXPECT_EQ(chosen.compressed.obstacle, "block selection of more than 64 blocks");
  EXPECT_EQ(chosen.selected.obstacle, "more than 64 ranges a row");
  call = paper_call();
  call.sel_block_size = 48;
  EXPECT_EQ(choose_branches(call, kH100, "auto").compressed.obstacle,
            "block selection where l'/d does not divide 128");
  call = paper_call();
  call.block_size = 144;
  EXPECT_EQ(choose_branches(call, kH100, "auto").compressed.obstacle,
            "block selection with l/d above 8");
  call = paper_call();
  call.qk_head_dim = 96;
  chosen = choose_branches(call, kH100, "auto");
  for (const KernelChoice& branch : {chosen.compressed, chosen.window, chosen.selected})
    expect_choice(branch, KernelCode::kSm90, "", "padded to 128/128");
  call.qk_head_dim = 320;
  chosen = choose_branches(call, kH100, "auto");
  for (const KernelChoice& branch : {chosen.compressed, chosen.window, chosen.selected})
    EXPECT_EQ(branch.obstacle, "head dims dk/dv are above 256/256, the largest that kernels have");
}

}  // namespace
}  // namespace nsa
