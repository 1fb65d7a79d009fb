#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Errors of GPUs in the kernel's log: the NVIDIA driver writes "NVRM: Xid (PCI:0000:3b:00): 79,
/// ..." there. NVML reports them only to a program that waits for them.
namespace harness {

/// One kind of error of one GPU.
struct XidErrors {
  std::string bus;  ///< "0000:3b:00"
  int64_t code = 0;
  int64_t count = 0;
  std::string last;  ///< the text behind the code in the newest line
};

/// In the order of their first lines. Lines that are none are passed over.
std::vector<XidErrors> xid_errors(std::string_view kernel_log);

struct KernelLog {
  std::string text;
  std::string problem;  ///< why it could not be read; empty when it was
};

/// What the kernel's buffer holds now; needs CAP_SYSLOG on most machines.
KernelLog read_kernel_log();

}  // namespace harness
