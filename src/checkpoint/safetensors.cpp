// SPDX-License-Identifier: Apache-2.0
// Reading checks every number before it is used; time is linear but for one sort, memory is bounded by the header,
// which is at most kMaxHeaderBytes long.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/json.h"

namespace switchyard::checkpoint {
namespace {

struct NamedDType {
  std::string_view name;
  DType dtype;
};
constexpr NamedDType kDTypes[] = {
    {"F32", DType::f32},         {"F16", DType::f16}, {"BF16", DType::bf16},
    {"F8_E4M3", DType::f8_e4m3}, {"I8", DType::i8},   {"U8", DType::u8},
    {"I32", DType::i32},         {"I64", DType::i64}, {"BOOL", DType::boolean}};

/// Types of the format that this program does not read.
constexpr std::string_view kUnsupported[] = {
    "F64",     "I16", "U16",     "U32",     "U64",         "C64",        "F8_E5M2",
    "F8_E8M0", "F4",  "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

uint64_t read_u64(const std::byte* at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | std::to_integer<uint64_t>(at[i]);
  return value;
}

// The header's text, once its length makes sense.
Result<std::string_view> header_text(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < 8) {
    return fail(Code::bad_file,
                "{}: {} bytes are too few for a safetensors file (8-byte header length): the file "
                "is truncated or empty",
                name, file.size());
  }
  const uint64_t length = read_u64(file.data());
  if (length == 0 || length > kMaxHeaderBytes) {
    return fail(Code::bad_file,
                "{}: offset 0: header length {} is not in [1, {}]: this is no safetensors file",
                name, length, kMaxHeaderBytes);
  }
  if (length > file.size() - 8) {
    return fail(Code::bad_file,
                "{}: offset 0: header length {} goes past the end of the file ({} bytes): the file "
                "is truncated",
                name, length, file.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (text[0] != '{') {
    return fail(Code::bad_file, "{}: offset 8: the header must start with '{{', found byte {:#04x}",
                name, static_cast<unsigned char>(text[0]));
  }
  const size_t last = text.find_last_not_of(' ');
  if (text[last] != '}') {
    return fail(Code::bad_file,
                "{}: offset {}: the header must end with '}}' and spaces, found byte {:#04x}", name,
                8 + last, static_cast<unsigned char>(text[last]));
  }
  return text;
}

std::string kind_of(const Json* json) {
  return json == nullptr ? "none" : std::string(json->kind_name());
}

Result<DType> read_dtype(const Json& spec, const std::string& where) {
  const Json* dtype = spec.find("dtype");
  if (dtype == nullptr || !dtype->is_string()) {
    return fail(Code::bad_file, "{}: expected a string 'dtype', found {}", where, kind_of(dtype));
  }
  for (const NamedDType& known : kDTypes) {
    if (known.name == dtype->as_string()) return known.dtype;
  }
  const bool defined = std::find(std::begin(kUnsupported), std::end(kUnsupported),
                                 dtype->as_string()) != std::end(kUnsupported);
  return fail(defined ? Code::unsupported : Code::bad_file,
              "{}: dtype '{}' is {}; expected F32, F16, BF16, F8_E4M3, I8, U8, I32, I64 or BOOL: "
              "convert the checkpoint",
              where, dtype->as_string(), defined ? "not supported" : "not known");
}

Result<Shape> read_shape(const Json& spec, const std::string& where) {
  const Json* extents = spec.find("shape");
  if (extents == nullptr || !extents->is_array()) {
    return fail(Code::bad_file, "{}: expected an array 'shape', found {}", where, kind_of(extents));
  }
  if (extents->as_array().size() > kMaxRank) {
    return fail(Code::bad_file, "{}: shape has {} dimensions, at most {} are known", where,
                extents->as_array().size(), kMaxRank);
  }
  Shape shape;
  for (const Json& extent : extents->as_array()) {
    if (!extent.is_integer() || extent.as_int() < 0) {
      return fail(Code::bad_file, "{}: shape must hold non-negative integers, found {}", where,
                  json_text(extent));
    }
    shape.append(extent.as_int());
  }
  return shape;
}

Status read_offsets(const Json& spec, const std::string& where, TensorEntry& entry) {
  const Json* offsets = spec.find("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2) {
    return fail(Code::bad_file, "{}: expected 'data_offsets' with two numbers, found {}", where,
                offsets != nullptr && offsets->is_array()
                    ? fmt::format("{} of them", offsets->as_array().size())
                    : kind_of(offsets));
  }
  for (const Json& offset : offsets->as_array()) {
    if (!offset.is_integer() || offset.as_int() < 0) {
      return fail(Code::bad_file, "{}: data_offsets must be non-negative integers, found {}", where,
                  json_text(offset));
    }
  }
  entry.begin = static_cast<uint64_t>(offsets->as_array()[0].as_int());
  entry.end = static_cast<uint64_t>(offsets->as_array()[1].as_int());
  if (entry.begin > entry.end) {
    return fail(Code::bad_file, "{}: data_offsets [{}, {}] are reversed", where, entry.begin,
                entry.end);
  }
  return {};
}

// Sub-byte and unknown fields would change what the bytes mean, so nothing beyond the three fields
// is allowed.
Status check_fields(const Json& spec, const std::string& where) {
  if (!spec.is_object()) {
    return fail(Code::bad_file, "{}: expected an object, found {}", where, spec.kind_name());
  }
  for (const auto& [key, value] : spec.as_object()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return fail(Code::bad_file, "{}: field '{}' is not part of the format", where, key);
    }
  }
  return {};
}

Result<TensorEntry> read_entry(std::string_view file_name, const std::string& name,
                               const Json& spec, uint64_t data_bytes) {
  const std::string where = fmt::format("{}: tensor '{}'", file_name, name);
  SWITCHYARD_TRY(check_fields(spec, where));
  TensorEntry entry;
  entry.name = name;
  SWITCHYARD_ASSIGN(entry.dtype, read_dtype(spec, where));
  SWITCHYARD_ASSIGN(entry.shape, read_shape(spec, where));
  SWITCHYARD_TRY(read_offsets(spec, where, entry));
  const std::optional<int64_t> elements = entry.shape.checked_elements();
  int64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, dtype_bytes(entry.dtype), &bytes)) {
    return fail(Code::bad_file, "{}: the size of shape {} overflows", where, entry.shape.text());
  }
  if (entry.end > data_bytes) {
    return fail(Code::bad_file,
                "{}: data_offsets [{}, {}] go past the end of the data ({} bytes): the file is "
                "truncated",
                where, entry.begin, entry.end, data_bytes);
  }
  if (static_cast<uint64_t>(bytes) != entry.bytes()) {
    return fail(Code::bad_file, "{}: {} {} takes {} bytes, data_offsets [{}, {}] hold {}", where,
                entry.shape.text(), dtype_name(entry.dtype), bytes, entry.begin, entry.end,
                entry.bytes());
  }
  return entry;
}

Status check_metadata(const Json& metadata, std::string_view file_name) {
  if (!metadata.is_object()) {
    return fail(Code::bad_file, "{}: __metadata__ must be an object of strings, found {}",
                file_name, metadata.kind_name());
  }
  for (const auto& [key, value] : metadata.as_object()) {
    if (!value.is_string()) {
      return fail(Code::bad_file, "{}: __metadata__ key '{}' must be a string, found {}", file_name,
                  key, value.kind_name());
    }
  }
  return {};
}

// In order of offset the tensors must follow each other exactly and end with the data.
Status check_coverage(const std::vector<TensorEntry>& entries, std::string_view file_name,
                      uint64_t data_bytes) {
  std::vector<const TensorEntry*> order;
  for (const TensorEntry& entry : entries) {
    if (entry.bytes() > 0) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->begin < b->begin; });
  uint64_t covered = 0;
  for (const TensorEntry* entry : order) {
    if (entry->begin != covered) {
      return fail(Code::bad_file, "{}: tensor '{}': data starts at {}, expected {}: tensors {}",
                  file_name, entry->name, entry->begin, covered,
                  entry->begin < covered ? "overlap" : "leave a hole");
    }
    covered = entry->end;
  }
  if (covered != data_bytes) {
    return fail(Code::bad_file,
                "{}: the tensors cover {} bytes, the file holds {} after the header: bytes that "
                "belong to no tensor",
                file_name, covered, data_bytes);
  }
  return {};
}

Result<std::vector<TensorEntry>> parse(std::span<const std::byte> file, std::string_view name) {
  SWITCHYARD_ASSIGN(const std::string_view text, header_text(file, name));
  SWITCHYARD_ASSIGN(const Json header,
                    parse_json(text, fmt::format("{}: header from offset 8 on", name)));
  const uint64_t data_at = 8 + text.size(), data_bytes = file.size() - data_at;
  // Sorting pointers is several times faster than sorting entries afterwards.
  std::vector<const Json::Member*> members;
  for (const Json::Member& member : header.as_object()) members.push_back(&member);
  std::sort(members.begin(), members.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  std::vector<TensorEntry> entries;
  entries.reserve(members.size());
  for (const Json::Member* member : members) {
    const auto& [key, spec] = *member;
    if (key == "__metadata__") {
      SWITCHYARD_TRY(check_metadata(spec, name));
      continue;
    }
    SWITCHYARD_ASSIGN(TensorEntry entry, read_entry(name, key, spec, data_bytes));
    entries.push_back(std::move(entry));
  }
  SWITCHYARD_TRY(check_coverage(entries, name, data_bytes));
  for (TensorEntry& entry : entries) {
    entry.begin += data_at;
    entry.end += data_at;
    entry.data = file.data() + entry.begin;
  }
  return entries;
}

}  // namespace

Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file,
                                                   std::string_view name) {
  Result<std::vector<TensorEntry>> entries = parse(file, name);
  if (entries.ok() || entries.error().code != Code::bad_file) return entries;
  Error error = std::move(entries).error();
  error.message += "; fetch the file again, or ask whoever wrote it";
  return error;
}

Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, TensorView>>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::string header;
  JsonWriter json(header);
  json.begin_object();
  if (!metadata.empty()) {
    json.key("__metadata__").begin_object();
    for (const auto& [key, value] : metadata) json.field(key, value);
    json.end_object();
  }
  int64_t offset = 0;
  for (const auto& [name, view] : tensors) {
    SWITCHYARD_CHECK(view.dense(), "{} is not dense", name);
    const auto* known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                     [&v = view](const auto& d) { return d.dtype == v.dtype; });
    json.key(name).begin_object().field("dtype", known->name).key("shape").begin_array();
    for (int i = 0; i < view.shape.rank(); ++i) json.integer(view.shape[i]);
    json.end_array().key("data_offsets").begin_array();
    json.integer(offset).integer(offset + view.bytes()).end_array().end_object();
    offset += view.bytes();
  }
  json.end_object();
  header.append((8 - header.size() % 8) % 8, ' ');  // data starts at a multiple of eight
  std::string content;
  for (size_t i = 0; i < 8; ++i) {
    content += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  }
  content += header;
  for (const auto& [name, view] : tensors) {
    content.append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
  }
  return write_file_atomic(path, content);
}

}  // namespace switchyard::checkpoint
