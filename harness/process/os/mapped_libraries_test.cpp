#include "harness/process/os/mapped_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/hash/sha256.h"
#include "base/loader/search_path.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using testing::IsEmpty;

TEST(MappedLibraries, OthersThanThoseOfProductAndLibTorchAreLeftOut) {
  EXPECT_THAT(mapped_libraries(::getpid()), IsEmpty()) << "libc and the like";
  EXPECT_THAT(mapped_libraries(-1), IsEmpty());
}

TEST(MappedLibraries, AFileThatWasReplacedIsHashedAgain) {
  const TempDir dir;
  const std::string path = (dir / "libnsa.so").string();
  write_bytes(path, "one");
  EXPECT_EQ(identified({path}).at(0), (LoadedLibrary{"libnsa.so", base::sha256_hex("one")}));
  write_bytes(path, "two");
  EXPECT_EQ(identified({path}).at(0).sha256, base::sha256_hex("two"));
  std::filesystem::remove(path);
  EXPECT_EQ(identified({path}).at(0).sha256, "");
}

TEST(SearchPath, FoldersThatHoldTheProductAndRelativeOnesAreLeftOut) {
  const TempDir torch, product;
  write_bytes(torch / "libtorch_cpu.so", "");
  write_bytes(product / "libnsa.so", "");
  const std::string kept = torch.path().string(), dropped = product.path().string();
  EXPECT_EQ(base::clean_search_path(kept), kept);
  EXPECT_EQ(base::clean_search_path(dropped + ":" + kept + "::lib:/nowhere"), kept + ":/nowhere");
  EXPECT_EQ(base::inherited_value("LD_LIBRARY_PATH", kept), kept);
  EXPECT_EQ(base::inherited_value("LD_LIBRARY_PATH", dropped), std::nullopt);
  for (const char* name : {"LD_PRELOAD", "LD_AUDIT", "LD_BIND_NOT", "GLIBC_TUNABLES"})
    EXPECT_EQ(base::inherited_value(name, kept), std::nullopt) << name;
  EXPECT_EQ(base::inherited_value("PATH", "bin"), "bin");
}

}  // namespace
}  // namespace harness
