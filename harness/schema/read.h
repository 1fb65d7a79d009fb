#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/schema/parse/source.h"
#include "harness/schema/traits.h"

/// Strict reader of described structs. Unknown and missing keys, wrong types, unknown enum values
/// and numbers out of range are ConfigErrors that name the key, the value and the remedy.
namespace harness {

/// kPartial: a document that `extends` another; of the required keys only those that identify
/// (`id`, `name`, `schema`) must be there.
enum class ReadMode { kFull, kPartial };

class Reader {
 public:
  explicit Reader(const Source& source, ReadMode mode = ReadMode::kFull)
      : source_(source), mode_(mode) {}

  template <class T>
  T read(const nlohmann::json& value) {
    T out{};
    take(value, out);
    return out;
  }

 private:
  using json = nlohmann::json;

  void take(const json& value, bool& out);
  void take(const json& value, int64_t& out);
  void take(const json& value, double& out);
  void take(const json& value, std::string& out);
  void take(const json& value, json& out) { out = value; }

  template <EnumType E>
  void take(const json& value, E& out) {
    const std::string name = enum_text(value, enum_names<E>());
    for (const auto& [e, text] : EnumNames<E>::names)
      if (text == name) out = e;
  }

  template <OptionalType T>
  void take(const json& value, T& out) {
    if (!value.is_null()) take(value, out.emplace());
  }

  template <VectorType T>
  void take(const json& value, T& out) {
    expect(value, value.is_array(), "a list");
    out.clear();
    for (const json& item : value) {
      path_.push_back("[" + std::to_string(out.size()) + "]");
      take(item, out.emplace_back());
      path_.pop_back();
    }
  }

  template <MapType T>
  void take(const json& value, T& out) {
    expect(value, value.is_object(), "an object");
    for (const auto& [key, item] : value.items()) {
      path_.push_back(key);
      take(item, out[key]);
      path_.pop_back();
    }
  }

  template <DescribedType T>
  void take(const json& value, T& out) {
    expect(value, value.is_object(), "an object");
    NameCollector names;
    T::describe(names);
    reject_unknown_keys(value, names.all);
    FieldReader<T> fields{*this, value, out};
    T::describe(fields);
  }

  struct NameCollector {
    std::vector<std::string> all;
    template <class M, class C>
    void operator()(const FieldDoc& doc, M C::*) {
      all.emplace_back(doc.name);
      if (!doc.before.empty()) all.emplace_back(doc.before);
    }
  };

  template <class T>
  struct FieldReader {
    Reader& reader;
    const json& object;
    T& out;
    template <class M>
    void operator()(const FieldDoc& doc, M T::* member) {
      const json* value = reader.enter(object, doc);
      if (value == nullptr) return;
      reader.take(*value, out.*member);
      reader.path_.pop_back();
    }
  };

  void expect(const json& value, bool ok, std::string_view want) const;
  void reject_unknown_keys(const json& object, const std::vector<std::string>& known) const;
  void missing(const json& object, const FieldDoc& doc) const;
  /// The value of a field, whose name is then the end of the path; null when the key is absent.
  const json* enter(const json& object, const FieldDoc& doc);
  std::string enum_text(const json& value, const std::vector<std::string>& names) const;
  std::string where() const;

  const Source& source_;
  ReadMode mode_;
  std::vector<std::string> path_;  ///< keys and [indices] down to the value being read
};

/// Reads one document. Throws ConfigError.
template <class T>
T read_json(std::string_view text, const std::string& file) {
  Source source;
  const nlohmann::json document = source.parse(text, file);
  return Reader(source).read<T>(document);
}

}  // namespace harness
