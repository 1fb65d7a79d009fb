#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// Argument checks of operators. Every failure is a c10::Error with the text
/// `nsa::<op>: <argument> must be <want>, got <have>`: a c10::TypeError for a data type, else a
/// c10::ValueError (TypeError and ValueError in Python).
class ArgumentCheck {
 public:
  explicit ArgumentCheck(const char* op) : op_(op) {}

  void defined(const char* name, const at::Tensor& tensor) const;
  /// `legend` names the axes, as in "[B, S, Hq, dk]".
  void rank(const char* name, const at::Tensor& tensor, int64_t rank, const char* legend) const;
  /// -1 in `sizes` accepts anything.
  void sizes(const char* name, const at::Tensor& tensor, std::initializer_list<int64_t> sizes,
             const char* legend) const;
  /// float, double, half or bfloat16.
  void floating(const char* name, const at::Tensor& tensor) const;
  void dtype(const char* name, const at::Tensor& tensor, at::ScalarType want) const;
  void same_dtype(const char* name, const at::Tensor& tensor, const char* other_name,
                  const at::Tensor& other) const;
  void same_device(const char* name, const at::Tensor& tensor, const char* other_name,
                   const at::Tensor& other) const;
  /// `tensor` must have the shape of `other`.
  void same_shape(const char* name, const at::Tensor& tensor, const char* other_name,
                  const at::Tensor& other) const;
  /// `tensor` must have `rank` axes at least.
  void least_rank(const char* name, const at::Tensor& tensor, int64_t rank,
                  const char* legend) const;
  void at_least(const char* name, int64_t value, int64_t least) const;
  /// `value` must be a multiple of `divisor`.
  void multiple(const char* name, int64_t value, int64_t divisor, const char* divisor_name) const;
  /// q [B, S, Hq, dk], k [B, N, Hkv, dk], v [B, N, Hkv, dv]: ranks, sizes, one float type, device.
  void qkv(const at::Tensor& q, const char* k_name, const at::Tensor& k, const char* v_name,
           const at::Tensor& v) const;
  /// The factor of q.k: `given`, which must be positive and finite, or 1 / sqrt(dk) of q [.., dk].
  double scale(std::optional<double> given, const at::Tensor& q) const;

  [[noreturn]] void fail(const std::string& name, const std::string& want,
                         const std::string& have) const;
  [[noreturn]] void fail_type(const std::string& name, const std::string& want,
                              at::ScalarType have) const;

 private:
  const char* op_;
};

/// fp64 for fp64, fp32 for every other float type.
at::ScalarType accumulation_type(at::ScalarType dtype);

/// fp32 for the half types, fp64 for the others.
at::ScalarType wider_type(at::ScalarType dtype);

/// Type that the operators sum products of such tensors in: the accumulation type, but fp64 for
/// fp32 on a CPU, where kernels compute fp32 fast and the operators are there for checks. On a GPU
/// they are what computes fp32, and many cards have 1/64 of the units for fp64.
at::ScalarType sum_type(const at::Tensor& x);
/// a [N, x, y] times b [N, y, z], of one type and in it; fp32 is not rounded to TF32 whatever
/// `allow_tf32` is.
at::Tensor product_of(const at::Tensor& a, const at::Tensor& b);

/// cu_seqlens on the host after checking: int32 [docs + 1], starts at 0, never falls, ends at
/// `num_tokens`. Synchronises with the device.
std::vector<int64_t> document_offsets(const char* op, const at::Tensor& cu_seqlens,
                                      int64_t num_tokens);

}  // namespace nsa
