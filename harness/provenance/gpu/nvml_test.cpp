// What is read from NVML, with a library that answers without a driver (fake_nvml).
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "harness/provenance/gpu/fake_nvml.h"
#include "harness/provenance/gpu/gpu.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr unsigned long long kMib = 1 << 20;

/// The library stays open, so that what it answers can be set before it is asked.
class NvmlTest : public testing::Test {
 protected:
  explicit NvmlTest(const char* library = FAKE_NVML)
      : library_(library), handle_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    if (const char* usual = std::getenv("CUDA_VISIBLE_DEVICES")) visible_ = usual;
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    if (handle_ == nullptr) throw std::runtime_error(::dlerror());
    answers() = FakeNvml();
  }
  ~NvmlTest() override {
    if (visible_) ::setenv("CUDA_VISIBLE_DEVICES", visible_->c_str(), 1);
    ::dlclose(handle_);
  }
  FakeNvml& answers() const { return *static_cast<FakeNvml*>(::dlsym(handle_, "fake_nvml")); }
  GpuList list() const { return list_gpus(library_); }
  GpuFacts first() const {
    const GpuList all = list();
    return all.gpus.empty() ? GpuFacts() : all.gpus[0];
  }

 private:
  std::string library_;
  void* handle_;
  std::optional<std::string> visible_;
};

class OldNvmlTest : public NvmlTest {
 protected:
  OldNvmlTest() : NvmlTest(FAKE_NVML_OLD) {}
};

TEST_F(NvmlTest, EveryFactIsReadFromItsOwnCall) {
  answers().used = 12 * kMib;
  answers().clock_reasons = 0;
  const GpuList list = this->list();
  EXPECT_TRUE(list.nvml);
  EXPECT_EQ(list.problem, "");
  EXPECT_EQ(list.driver, "580.65.06");
  EXPECT_EQ(list.cuda, "13.2");
  EXPECT_EQ(list.visible, "");
  ASSERT_EQ(list.gpus.size(), 2u);
  const GpuFacts& gpu = list.gpus[1];
  EXPECT_EQ(gpu.index, 1);
  EXPECT_EQ(gpu.name, "Fake 1");
  EXPECT_EQ(gpu.uuid, "GPU-f1");
  EXPECT_EQ(gpu.vbios, "96.01");
  EXPECT_EQ(gpu.cc, "9.1");
  EXPECT_EQ(gpu.compute_mode, "default");
  EXPECT_EQ(gpu.memory_total_mib, 2000);
  EXPECT_EQ(gpu.memory_used_mib, 12);
  EXPECT_EQ(gpu.memory_free_mib, 1888) << "what the driver reserves is neither used nor free";
  EXPECT_EQ(gpu.sm_clock_mhz, 1500);
  EXPECT_EQ(gpu.max_sm_clock_mhz, 1980);
  EXPECT_EQ(gpu.memory_clock_mhz, 2600);
  EXPECT_EQ(gpu.power_limit_w, 700) << "NVML reports milliwatts";
  EXPECT_EQ(gpu.temperature_c, 41);
  EXPECT_EQ(gpu.pcie_gen, 4);
  EXPECT_EQ(gpu.pcie_width, 8);
  EXPECT_EQ(gpu.max_pcie_gen, 5);
  EXPECT_EQ(gpu.max_pcie_width, 16);
  EXPECT_EQ(gpu.nvlinks, 6);
  EXPECT_EQ(gpu.ecc_uncorrected, 3);
  EXPECT_EQ(gpu.throttle_bits, 0);
  EXPECT_EQ(gpu.ecc, true) << "what holds now, not what the next boot brings";
  EXPECT_EQ(gpu.persistence, false);
  EXPECT_EQ(gpu.mig, false);
  EXPECT_THAT(gpu.processes, IsEmpty());
  EXPECT_EQ(gpu.processes_problem, "");
  EXPECT_EQ(list.gpus[0].uuid, "GPU-f0");
  EXPECT_EQ(answers().started, 0) << "NVML is left as it was found";
}

TEST_F(NvmlTest, ACardWithoutNvLinkHasNoneUp) {
  answers().nvlinks = 0;
  EXPECT_EQ(first().nvlinks, 0) << "known, and other than not known";
}

TEST_F(NvmlTest, ADriverThatDoesNotStartIsReported) {
  answers().init = NVML_ERROR_DRIVER_NOT_LOADED;
  const GpuList list = this->list();
  EXPECT_FALSE(list.nvml);
  EXPECT_THAT(list.gpus, IsEmpty());
  EXPECT_EQ(list.problem, "NVML does not start (status 9): the driver answers no device");
  EXPECT_EQ(answers().started, 0);
}

TEST_F(NvmlTest, ALostDeviceIsLeftOutAndTheOthersKeepTheirNumbers) {
  answers().devices = 3;
  answers().lost = 1;
  std::vector<int64_t> indices;
  for (const GpuFacts& gpu : list().gpus) indices.push_back(gpu.index);
  EXPECT_THAT(indices, ElementsAre(0, 2));
}

TEST_F(NvmlTest, ProcessesHaveNameAndMemoryWhereTheDriverReportsIt) {
  answers().process_count = 2;
  answers().processes[0].pid = static_cast<unsigned int>(::getpid());
  answers().processes[0].usedGpuMemory = 800 * kMib;
  answers().processes[1].pid = 1U << 30;
  answers().processes[1].usedGpuMemory = static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
  answers().used = 900 * kMib;
  const GpuFacts gpu = first();
  ASSERT_EQ(gpu.processes.size(), 2u);
  EXPECT_EQ(gpu.processes[0].pid, ::getpid());
  EXPECT_EQ(gpu.processes[0].mib, 800);
  EXPECT_THAT(gpu.processes[0].name, HasSubstr("provenance_test"));
  EXPECT_EQ(gpu.processes[1].mib, std::nullopt);
  EXPECT_EQ(gpu.processes[1].name, "") << "a process of another container";
  EXPECT_EQ(gpu.processes_problem, "");
}

TEST_F(NvmlTest, AListThatCannotBeTrustedReportsWhy) {
  answers().used = GpuFacts::kIdleMib * kMib;
  EXPECT_EQ(first().processes_problem, "") << "an idle card holds as much";
  answers().used += kMib;
  EXPECT_THAT(first().processes_problem, HasSubstr("memory is held and no process is visible"));
  answers().process_list = NVML_ERROR_NO_PERMISSION;
  EXPECT_EQ(first().processes_problem,
            "NVML gives no process list (status 4); fallback: used memory of the device");
}

TEST_F(NvmlTest, MemoryFallsBackToTheOlderCall) {
  answers().memory_v2 = NVML_ERROR_NOT_SUPPORTED;
  answers().used = 30 * kMib;
  const GpuFacts gpu = first();
  EXPECT_EQ(gpu.memory_total_mib, 1000);
  EXPECT_EQ(gpu.memory_used_mib, 30);
  EXPECT_EQ(gpu.memory_free_mib, 970);
}

TEST_F(NvmlTest, OnlyWhatHoldsClocksDownIsThrottling) {
  answers().clock_reasons =
      nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonApplicationsClocksSetting;
  EXPECT_EQ(first().throttle_bits, 0);
  answers().clock_reasons |= nvmlClocksEventReasonSwPowerCap;
  EXPECT_EQ(first().throttle_bits, nvmlClocksEventReasonSwPowerCap);
}

TEST_F(NvmlTest, ComputeModesHaveNames) {
  for (const auto& [mode, name] : std::vector<std::pair<nvmlComputeMode_t, std::string>>{
           {NVML_COMPUTEMODE_DEFAULT, "default"},
           {NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, "exclusive process"},
           {NVML_COMPUTEMODE_PROHIBITED, "prohibited"},
           {NVML_COMPUTEMODE_EXCLUSIVE_THREAD, "other"}}) {
    answers().compute_mode = mode;
    EXPECT_EQ(first().compute_mode, name);
  }
}

TEST_F(NvmlTest, WhatIsHiddenIsNotListed) {
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const GpuList one = list();
  ::setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  const GpuList none = list();
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(one.visible, "1");
  ASSERT_EQ(one.gpus.size(), 1u);
  EXPECT_EQ(one.gpus[0].uuid, "GPU-f1");
  EXPECT_EQ(one.problem, "");
  EXPECT_TRUE(none.nvml);
  EXPECT_THAT(none.gpus, IsEmpty());
  EXPECT_EQ(none.problem, "CUDA_VISIBLE_DEVICES=7 shows no GPU of this machine");
}

TEST_F(OldNvmlTest, LacksSingleFactsNotAll) {
  answers().used = 10 * kMib;
  const GpuFacts gpu = first();
  EXPECT_EQ(gpu.name, "Fake 0");
  EXPECT_EQ(gpu.memory_total_mib, 1000);
  EXPECT_EQ(gpu.sm_clock_mhz, 1500);
  EXPECT_EQ(gpu.vbios, "");
  EXPECT_EQ(gpu.compute_mode, "");
  for (const auto& fact :
       {gpu.max_sm_clock_mhz, gpu.power_limit_w, gpu.temperature_c, gpu.pcie_gen, gpu.pcie_width,
        gpu.max_pcie_gen, gpu.max_pcie_width, gpu.nvlinks, gpu.ecc_uncorrected, gpu.throttle_bits})
    EXPECT_EQ(fact, std::nullopt);
  for (const auto& fact : {gpu.ecc, gpu.persistence, gpu.mig}) EXPECT_EQ(fact, std::nullopt);
  EXPECT_THAT(gpu.processes_problem, HasSubstr("no process list"));
}

}  // namespace
}  // namespace harness
