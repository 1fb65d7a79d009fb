#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "harness/phases/run_alone.h"

namespace harness {

/// A shell script in the place of nsa-worker for tests, which reports its switches and refuses one
/// misspelt switch, and an nsa-train that refuses a switch. `blind`: the worker accepts the
/// misspelt one. `alarmed`: it refuses a known one. Of its kinds only `looks` reads the switch.
inline void write_fake_worker(const std::filesystem::path& bin_dir, bool blind = false,
                              bool alarmed = false) {
  std::filesystem::create_directories(bin_dir);
  const std::string path = (bin_dir / "nsa-worker").string();
  std::ofstream(path) << R"(#!/bin/sh
if [ "$1" = --ignored-by ]; then
  case ",$2," in *,looks,*) ;; *) echo "NSA_SEL_RANGES_V2=1" ;; esac
  exit 0
fi
read line
if [ -n "$)"
                      << (alarmed ? "NSA_SEL_RANGES_V2"
                          : blind ? "NSA_NONE"
                                  : "NSA_SEL_RANGES_V3")
                      << R"(" ]; then
  echo "CONFIG_ERROR: unknown switch NSA_SEL_RANGES_V3; did you mean NSA_SEL_RANGES_V2?" >&2; exit 2
fi
cat > "$2" <<END
{"type":"hello","t":0,"v":1,"program":"fake","build_id":"","pid":1,"rank":0,"world":1,"device":"cpu","switches":[{"name":"NSA_SEL_RANGES_V2","value":"0","origin":"default"}]}
{"type":"check","t":0,"case":"injected","id":"invariant/future","ok":true}
{"type":"case","t":0,"case":"injected","status":"ok","reason":""}
{"type":"done","t":0,"lines":3}
END
)";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const std::string trainer = (bin_dir / "nsa-train").string();
  std::ofstream(trainer) << "#!/bin/sh\n"
                            "echo \"CONFIG_ERROR: NSA_DDP_BUCKET_MB is ignored\" >&2; exit 2\n";
  std::filesystem::permissions(trainer, std::filesystem::perms::owner_all);
}

}  // namespace harness
