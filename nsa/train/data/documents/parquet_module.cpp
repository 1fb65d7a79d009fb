// Module nsa_parquet: the only file that sees the Parquet library.
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <vector>

#include "nsa/program/input_error.h"
#include "nsa/train/data/documents/parquet_documents.h"

namespace nsa::train {
namespace {

constexpr int64_t kValuesARead = 256;
constexpr int kNamesInError = 30;

/// The library's reading buffer instead of whole column chunks; pages that carry a checksum are
/// checked.
::parquet::ReaderProperties reader_properties() {
  ::parquet::ReaderProperties properties;
  properties.enable_buffered_stream();
  properties.set_buffer_size(1 << 20);
  properties.set_page_checksum_verification(true);
  return properties;
}

std::string column_names(const ::parquet::SchemaDescriptor& schema) {
  std::string names;
  for (int i = 0; i < std::min(schema.num_columns(), kNamesInError); ++i)
    names += (i > 0 ? ", " : "") + schema.Column(i)->path()->ToDotString();
  return names + (schema.num_columns() > kNamesInError ? ", .." : "");
}

std::string type_name(const ::parquet::ColumnDescriptor& column) {
  const auto& logical = column.logical_type();
  std::string physical = ::parquet::TypeToString(column.physical_type());
  if (!logical || logical->is_none()) return physical;
  return physical + " (" + logical->ToString() + ")";
}

/// Index of `column` among the leaves of the schema.
int find_column(const ::parquet::SchemaDescriptor& schema, const std::string& column,
                const std::string& file) {
  for (int i = 0; i < schema.num_columns(); ++i) {
    const ::parquet::ColumnDescriptor& leaf = *schema.Column(i);
    if (leaf.path()->ToDotString() != column) continue;
    if (leaf.max_repetition_level() > 0)
      throw InputError(file + ": column " + column + " must hold one text a row, got a list");
    if (leaf.physical_type() != ::parquet::Type::BYTE_ARRAY || !leaf.logical_type() ||
        !leaf.logical_type()->is_string())
      throw InputError(file + ": column " + column + " must be text (string), got " +
                       type_name(leaf) + "; name another with --field");
    return i;
  }
  throw InputError(file + ": column " + column + " is missing; it has " + column_names(schema) +
                   "; name one with --field");
}

/// The values of one column chunk; the views live until the next read.
void read_chunk(::parquet::ByteArrayReader& reader, const TakeDocument& take,
                DocumentCounts& counts) {
  std::vector<::parquet::ByteArray> values(kValuesARead);
  std::vector<int16_t> levels(kValuesARead);
  while (reader.HasNext()) {
    int64_t num_values = 0;
    const int64_t num_rows =
        reader.ReadBatch(kValuesARead, levels.data(), nullptr, values.data(), &num_values);
    if (num_rows == 0) break;  // the caller misses them
    for (int64_t i = 0; i < num_values; ++i) {
      const ::parquet::ByteArray& value = values[static_cast<size_t>(i)];
      take({reinterpret_cast<const char*>(value.ptr), value.len});
    }
    counts.taken += num_values;
    counts.nulls += num_rows - num_values;
  }
}

DocumentCounts read_column(::parquet::ParquetFileReader& reader, int column, std::string& place,
                           const TakeDocument& take) {
  DocumentCounts counts;
  const auto metadata = reader.metadata();
  int64_t want_rows = 0;
  for (int group = 0; group < metadata->num_row_groups(); ++group) {
    place =
        "row group " + std::to_string(group) + " of " + std::to_string(metadata->num_row_groups());
    const auto rows = reader.RowGroup(group);
    const auto chunk = rows->Column(column);
    read_chunk(static_cast<::parquet::ByteArrayReader&>(*chunk), take, counts);
    want_rows += rows->metadata()->num_rows();
    if (counts.taken + counts.nulls != want_rows)
      throw ::parquet::ParquetException("rows end early: ", counts.taken + counts.nulls, " of ",
                                        want_rows);
  }
  return counts;
}

/// Errors of `take` are the caller's and pass unchanged; those of the library get file and place.
DocumentCounts read_parquet(const std::string& file, const std::string& column,
                            const TakeDocument& take) {
  std::string place = "description at the end";
  try {
    const auto reader =
        ::parquet::ParquetFileReader::OpenFile(file, /*memory_map=*/false, reader_properties());
    const int index = find_column(*reader->metadata()->schema(), column, file);
    return read_column(*reader, index, place, take);
  } catch (const ::parquet::ParquetException& error) {
    throw InputError(file + ", column " + column + ", " + place + ": " + error.what() +
                     "; the file is damaged: fetch it again");
  } catch (const std::bad_alloc&) {
    throw InputError(file + ", column " + column + ", " + place +
                     ": asks for more memory than there is; the file is damaged: fetch it again");
  }
}

}  // namespace

extern "C" [[gnu::visibility("default")]] ReadParquet nsa_read_parquet;

DocumentCounts nsa_read_parquet(const std::filesystem::path& file, const std::string& column,
                                const TakeDocument& take) {
  return read_parquet(file.string(), column, take);
}

}  // namespace nsa::train
