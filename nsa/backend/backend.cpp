#include "nsa/backend/backend.h"

#include <array>
#include <stdexcept>
#include <utility>

namespace nsa {
namespace {

template <typename Backend>
using Name = std::pair<Backend, const char*>;

constexpr std::array<Name<SelBackend>, 6> kSelNames{{{SelBackend::kGather, "gather"},
                                                     {SelBackend::kPacked, "packed"},
                                                     {SelBackend::kVarlen, "varlen"},
                                                     {SelBackend::kMasked, "masked"},
                                                     {SelBackend::kFused, "fused"},
                                                     {SelBackend::kCpu, "cpu"}}};
constexpr std::array<Name<BranchBackend>, 5> kBranchNames{{{BranchBackend::kPlain, "plain"},
                                                           {BranchBackend::kFlash, "flash"},
                                                           {BranchBackend::kCudnn, "cudnn"},
                                                           {BranchBackend::kFused, "fused"},
                                                           {BranchBackend::kCpu, "cpu"}}};

template <typename Names, typename Backend>
std::string name_of(const Names& names, Backend backend) {
  for (const auto& [value, name] : names) {
    if (value == backend) return name;
  }
  throw std::logic_error("backend without a name");
}

template <typename Names>
auto parse(const Names& names, const char* what, const std::string& text) {
  std::string choices;
  for (const auto& [value, name] : names) {
    if (text == name) return value;
    choices += (choices.empty() ? "" : ", ") + std::string(name);
  }
  throw std::invalid_argument(std::string(what) + " must be one of " + choices + ", got '" + text +
                              "'");
}

}  // namespace

std::string to_string(SelBackend backend) { return name_of(kSelNames, backend); }
std::string to_string(BranchBackend backend) { return name_of(kBranchNames, backend); }

SelBackend parse_sel_backend(const std::string& text) {
  return parse(kSelNames, "backend of the selected branch", text);
}

BranchBackend parse_branch_backend(const std::string& text) {
  return parse(kBranchNames, "backend of a branch", text);
}

}  // namespace nsa
