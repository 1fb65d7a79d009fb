#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace nsa::reference {

using Shape = std::vector<int64_t>;

/// "[2, 90, 4]", for error texts.
inline std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

/// Throws std::invalid_argument "nsa::reference::<op>: <argument> must be <want>, got <have>".
[[noreturn]] inline void reject(const std::string& op, const std::string& argument,
                                const std::string& want, const std::string& have) {
  throw std::invalid_argument("nsa::reference::" + op + ": " + argument + " must be " + want +
                              ", got " + have);
}

/// Dense row-major array. A default-constructed one is "absent" (`defined()` is false); an axis of
/// length 0 is legal. Indices are checked; `row` checks its indices and hands out a plain span.
template <class T>
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Shape shape, T fill = T())
      : shape_(std::move(shape)), values_(count(shape_), fill) {}
  Tensor(Shape shape, std::vector<T> values)
      : shape_(std::move(shape)), values_(std::move(values)) {
    if (values_.size() != count(shape_))
      reject("Tensor", "values", std::to_string(count(shape_)) + " for " + to_string(shape_),
             std::to_string(values_.size()));
  }

  bool defined() const { return !shape_.empty(); }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t size(int64_t axis) const { return shape_.at(static_cast<size_t>(axis)); }
  std::vector<T>& values() { return values_; }
  const std::vector<T>& values() const { return values_; }

  /// The element at one index an axis.
  template <class... Index>
  T& operator()(Index... index) {
    return row(index...)[0];
  }
  template <class... Index>
  const T& operator()(Index... index) const {
    return row(index...)[0];
  }

  /// Everything below the given leading indices, e.g. x.row(b, t) of [B,S,H,D] is the H*D values.
  template <class... Index>
  std::span<T> row(Index... index) {
    const auto [begin, length] = locate({static_cast<int64_t>(index)...});
    return {values_.data() + begin, length};
  }
  template <class... Index>
  std::span<const T> row(Index... index) const {
    const auto [begin, length] = locate({static_cast<int64_t>(index)...});
    return {values_.data() + begin, length};
  }

  bool operator==(const Tensor&) const = default;

 private:
  static size_t count(const Shape& shape) {
    size_t product = 1;
    for (const int64_t length : shape) {
      if (length < 0) reject("Tensor", "shape", "non-negative", to_string(shape));
      product *= static_cast<size_t>(length);
    }
    return product;
  }
  std::pair<size_t, size_t> locate(std::initializer_list<int64_t> index) const {
    size_t begin = 0, axis = 0;
    if (index.size() > shape_.size()) fail(index);
    for (const int64_t i : index) {
      if (i < 0 || i >= shape_[axis]) fail(index);
      begin = begin * static_cast<size_t>(shape_[axis++]) + static_cast<size_t>(i);
    }
    size_t length = 1;
    for (; axis < shape_.size(); ++axis) length *= static_cast<size_t>(shape_[axis]);
    return {begin * length, length};
  }
  [[noreturn]] void fail(const Shape& index) const {
    throw std::out_of_range("nsa::reference::Tensor: index " + to_string(index) +
                            " is outside shape " + to_string(shape_));
  }

  Shape shape_;
  std::vector<T> values_;
};

/// Rejects a tensor that is absent or of another shape; `op` and `argument` go into the text.
template <class T>
void require_shape(const std::string& op, const std::string& argument, const Tensor<T>& tensor,
                   const Shape& want) {
  if (!tensor.defined()) reject(op, argument, to_string(want), "nothing");
  if (tensor.shape() != want) reject(op, argument, to_string(want), to_string(tensor.shape()));
}

/// Rejects a tensor that is absent or has another number of axes than `layout` (e.g.
/// "[B,S,Hq,dk]").
template <class T>
void require_rank(const std::string& op, const std::string& argument, const Tensor<T>& tensor,
                  int64_t rank, const std::string& layout) {
  if (!tensor.defined()) reject(op, argument, layout, "nothing");
  if (tensor.rank() != rank) reject(op, argument, layout, to_string(tensor.shape()));
}

}  // namespace nsa::reference
