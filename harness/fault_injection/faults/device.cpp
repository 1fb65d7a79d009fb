// P12: a foreign process on the device.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/run_alone.h"
#include "harness/process/os/file_io.h"
#include "harness/process/os/spawn.h"
#include "harness/provenance/build/git.h"
#include "harness/provenance/gpu/gpu.h"
#include "harness/schema/error.h"

namespace harness::injection {
namespace {

/// A worker that computes on the device and never ends, until the object does.
class Squatter {
 public:
  explicit Squatter(const SelftestSetup& setup)
      : channel_(create_append(dir_ / "squatter.jsonl")),
        child_(spawn(
            {{(setup.bin_dir / "nsa-worker").string()}, worker_environment({}), channel_.get()})) {
    base::protocol::CaseIn in{.phase = "squatter",
                              .kind = "ranges_equivalence",
                              .group = "g01",
                              .device = setup.device,
                              .args = {{"fault", "P11"}},
                              .cases = {{.id = "all"}},
                              .out = dir_.path().string()};
    const std::string line = base::protocol::print_case(in) + "\n";
    if (::write(child_.in.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw Error("the injected process took no case line");
    child_.in.reset();
  }
  ~Squatter() {
    ::kill(-child_.pid, SIGKILL);
    ::waitpid(child_.pid, nullptr, 0);
  }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;

  /// Waits until memory of a device is in use.
  void await() const {
    for (int i = 0; i < 300; ++i) {
      for (const GpuFacts& gpu : list_gpus().gpus)
        if (!gpu.exclusive()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    throw Error("the injected process took no device memory within 30 s");
  }

 private:
  TempDir dir_;
  Fd channel_;
  Child child_;
};

std::string device_report(const SelftestSetup& setup) {
  const TempDir dir;
  const auto transcript = run_alone(
      dir / "raw.jsonl", nlohmann::json::object(),
      [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
        run_environment(setup.bin_dir, this_checkout(), call, emitter);
      },
      setup.device);
  const auto* check = find_line<base::protocol::Check>(
      transcript, [](const base::protocol::Check& c) { return c.id == "gpu.free"; });
  if (check == nullptr) throw Error("the environment phase has no check of the device");
  return check->ok ? "" : check->code + " " + check->detail;
}

}  // namespace

Injected inject_held_memory(const SelftestSetup& setup) {
  const Squatter squatter(setup);
  squatter.await();
  const std::string seen = device_report(setup);
  return {seen.starts_with("GPU_NOT_FREE") && seen.find(" MiB") != std::string::npos,
          seen.empty() ? "not seen" : seen};
}

Injected control_free_device(const SelftestSetup& setup) {
  for (int i = 0; i < 50; ++i) {  // memory of the injected process comes back in its own time
    if (device_report(setup).empty()) return {true, "a free device: nothing reported"};
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return {false, device_report(setup)};
}

}  // namespace harness::injection
