// SPDX-License-Identifier: Apache-2.0
// Walks over the fields of two messages; everything else is skipped.
#include "text/sentencepiece_proto.h"

#include <cstdint>

namespace switchyard::text {
namespace {

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of a message or string
};

class Reader {
 public:
  Reader(std::string_view bytes, size_t offset) : bytes_(bytes), offset_(offset) {}

  bool done() const { return at_ == bytes_.size(); }
  size_t offset() const { return offset_ + at_; }

  Result<Field> next() {
    Field field;
    SWITCHYARD_ASSIGN(const uint64_t tag, varint());
    field.number = tag >> 3;
    switch (tag & 7) {
      case 0: {
        SWITCHYARD_ASSIGN(field.value, varint());
        return field;
      }
      case 1: {
        SWITCHYARD_ASSIGN(field.bytes, take(8));
        return field;
      }
      case 2: {
        SWITCHYARD_ASSIGN(const uint64_t length, varint());
        SWITCHYARD_ASSIGN(field.bytes, take(length));
        return field;
      }
      case 5: {
        SWITCHYARD_ASSIGN(field.bytes, take(4));
        return field;
      }
      default:
        return fail(Code::bad_file, "byte {}: the wire type {} is unknown", offset(), tag & 7);
    }
  }

 private:
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    return fail(Code::bad_file, "byte {}: a number breaks off", offset());
  }
  Result<std::string_view> take(uint64_t length) {
    if (length > bytes_.size() - at_) {
      return fail(Code::bad_file, "byte {}: a field of {} bytes, but {} are left", offset(), length,
                  bytes_.size() - at_);
    }
    const std::string_view taken = bytes_.substr(at_, length);
    at_ += length;
    return taken;
  }

  std::string_view bytes_;
  size_t offset_;
  size_t at_ = 0;
};

// Field numbers of ModelProto and NormalizerSpec.
constexpr uint64_t kNormalizer = 3, kDenormalizer = 5;
constexpr uint64_t kCharsMap = 2, kDummyPrefix = 3, kExtraWhiteSpace = 4;

Status read_spec(std::string_view bytes, size_t offset, uint64_t which, SentencePieceFacts& facts) {
  Reader reader(bytes, offset);
  while (!reader.done()) {
    SWITCHYARD_ASSIGN(const Field field, reader.next());
    if (which == kDenormalizer) {
      facts.denormalizes |= field.number == kCharsMap && !field.bytes.empty();
    } else if (field.number == kDummyPrefix) {
      facts.adds_dummy_prefix = field.value != 0;
    } else if (field.number == kExtraWhiteSpace) {
      facts.removes_extra_white_space = field.value != 0;
    }
  }
  return {};
}

}  // namespace

Result<SentencePieceFacts> read_sentencepiece_facts(std::string_view bytes) {
  SentencePieceFacts facts;
  Reader reader(bytes, 0);
  while (!reader.done()) {
    SWITCHYARD_ASSIGN(const Field field, reader.next());
    if (field.number != kNormalizer && field.number != kDenormalizer) continue;
    SWITCHYARD_TRY(
        read_spec(field.bytes, reader.offset() - field.bytes.size(), field.number, facts));
  }
  return facts;
}

}  // namespace switchyard::text
