// SPDX-License-Identifier: Apache-2.0
// Every malformed class of a safetensors file is refused, with the file, the tensor, what was found and expected, and
// what to do.
#include "checkpoint/safetensors.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "base/text_checks.h"
#include "checkpoint/safetensors_text.h"

namespace switchyard::checkpoint {
namespace {

Result<std::vector<TensorEntry>> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t data) {
  return file_of("{" + tensor("a", dtype, shape, offsets) + "}", data);
}

struct Case {
  const char* name;
  const char* says;  // a part of the message
  std::string file;
  Code code = Code::bad_file;
};

const Case kMalformed[] = {
    {"empty_file", "0 bytes are too few", ""},
    {"seven_bytes", "7 bytes are too few", "1234567"},
    {"header_length_zero", "offset 0: header length 0", file_of("", 8, 0)},
    {"header_length_past_the_end", "header length 100 goes past the end of the file (10 bytes)",
     file_of("{}", 0, 100)},
    {"header_length_above_the_cap", "header length 100000001",
     file_of("{}", 0, kMaxHeaderBytes + 1)},
    {"header_length_all_ones", "header length 18446744073709551615",
     file_of("{}", 0, ~uint64_t{0})},
    {"header_starts_with_space", "offset 8: the header must start with '{', found byte 0x20",
     file_of(" {}")},
    {"header_is_an_array", "found byte 0x5b", file_of("[]")},
    {"header_invalid_utf8", "header from offset 8 on: not valid JSON at byte 2: invalid UTF-8",
     file_of("{\"\xFF\": 1}")},
    {"header_trailing_bytes", "offset 10: the header must end with '}' and spaces, found byte 0x78",
     file_of("{}x")},
    {"header_too_deep", "nesting deeper than 64",
     file_of("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}")},
    {"header_nan", "not valid JSON at byte 6", file_of(R"({"a": NaN})")},
    {"duplicate_tensor", "\"a\" occurs twice",
     file_of(
         "{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("a", "U8", "[1]", "[0,1]") + "}",
         1)},
    {"tensor_is_no_object", "tensor 'a': expected an object, found integer",
     file_of(R"({"a": 1})")},
    {"missing_dtype", "tensor 'a': expected a string 'dtype', found none",
     file_of(R"({"a": {"shape": [1], "data_offsets": [0, 1]}})", 1)},
    {"missing_shape", "tensor 'a': expected an array 'shape', found none",
     file_of(R"({"a": {"dtype": "U8", "data_offsets": [0, 1]}})", 1)},
    {"missing_offsets", "tensor 'a': expected 'data_offsets' with two numbers, found none",
     file_of(R"({"a": {"dtype": "U8", "shape": [1]}})", 1)},
    {"extra_field", "tensor 'a': field 'scale'",
     file_of(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1], "scale": 2}})", 1)},
    {"unknown_dtype", "tensor 'a': dtype 'Q9' is not known; expected F32",
     one("Q9", "[1]", "[0,1]", 1)},
    {"four_bit_dtype", "dtype 'F4' is not supported", one("F4", "[1]", "[0,1]", 1),
     Code::unsupported},
    {"known_but_unread_dtype", "tensor 'a': dtype 'F64' is not supported",
     one("F64", "[1]", "[0,8]", 8), Code::unsupported},
    {"negative_extent", "found -1", one("U8", "[-1]", "[0,1]", 1)},
    {"fractional_extent", "found 1.5", one("U8", "[1.5]", "[0,1]", 1)},
    {"extent_above_int64", "found 18446744073709551615",
     one("U8", "[18446744073709551615]", "[0,1]", 1)},
    {"shape_overflows", "the size of shape [4611686018427387904, 4] overflows",
     one("F32", "[4611686018427387904, 4]", "[0,0]", 0)},
    {"bytes_overflow", "the size of shape [4611686018427387904] overflows",
     one("F32", "[4611686018427387904]", "[0,0]", 0)},
    {"too_many_dimensions", "shape has 6 dimensions, at most 5",
     one("U8", "[1,1,1,1,1,1]", "[0,1]", 1)},
    {"one_offset", "found 1 of them", one("U8", "[1]", "[0]", 1)},
    {"three_offsets", "found 3 of them", one("U8", "[1]", "[0,1,2]", 1)},
    {"negative_offset", "found -1", one("U8", "[1]", "[-1,0]", 1)},
    {"reversed_offsets", "data_offsets [1, 0] are reversed", one("U8", "[1]", "[1,0]", 1)},
    {"offsets_beyond_the_end", "[0, 4] go past the end of the data (2 bytes)",
     one("U8", "[4]", "[0,4]", 2)},
    {"length_unequal_to_shape", "[2] f32 takes 8 bytes, data_offsets [0, 4] hold 4",
     one("F32", "[2]", "[0,4]", 4)},
    {"overlap", "tensor 'b': data starts at 2, expected 4: tensors overlap",
     file_of(
         "{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[4]", "[2,6]") + "}",
         6)},
    {"hole", "tensor 'b': data starts at 4, expected 2: tensors leave a hole",
     file_of(
         "{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[4,6]") + "}",
         6)},
    {"hole_at_the_start", "data starts at 2, expected 0", one("U8", "[2]", "[2,4]", 4)},
    {"data_beyond_the_last_tensor", "cover 2 bytes, the file holds 9",
     one("U8", "[2]", "[0,2]", 9)},
    {"metadata_is_no_object", "__metadata__ must be an object of strings, found integer",
     file_of(R"({"__metadata__": 1})")},
    {"metadata_value_is_no_string", "__metadata__ key 'a' must be a string, found integer",
     file_of(R"({"__metadata__": {"a": 1}})")},
    {"header_ends_with_newline", "found byte 0x0a", file_of("{}\n")},
    {"header_ends_with_nul", "found byte 0x00", file_of(std::string("{}\0", 3))},
    {"header_integer_above_uint64", "a number out of range",
     one("U8", "[18446744073709551616]", "[0,1]", 1)},
    {"shape_as_text", "found string", one("U8", "\"[1]\"", "[0,1]", 1)},
    {"offset_above_int64", "found 9223372036854775808",
     one("U8", "[1]", "[0,9223372036854775808]", 1)},
    {"fractional_offset", "found 1.5", one("U8", "[1]", "[0,1.5]", 1)},
    {"empty_tensor_beyond_the_end", "go past the end of the data (0 bytes)",
     one("U8", "[0]", "[5,5]", 0)},
    {"same_bytes_twice", "tensor 'b': data starts at 0, expected 2: tensors overlap",
     file_of(
         "{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[0,2]") + "}",
         2)},
    {"duplicate_field", "\"dtype\" occurs twice",
     file_of(R"({"a": {"dtype": "U8", "dtype": "I8", "shape": [1], "data_offsets": [0, 1]}})", 1)},
};

class Malformed : public testing::TestWithParam<Case> {};

TEST_P(Malformed, IsRefusedWithItsReason) {
  const auto entries = parse(GetParam().file);
  ASSERT_FALSE(entries.ok());
  EXPECT_EQ(entries.error().code, GetParam().code);
  EXPECT_TRUE(entries.error().message.starts_with("x.safetensors: ")) << entries.error().message;
  EXPECT_TRUE(has(entries.error().message, GetParam().says));
  const bool bad = GetParam().code == Code::bad_file;
  EXPECT_TRUE(has(entries.error().message, bad ? "fetch the file again" : "convert"));
}

INSTANTIATE_TEST_SUITE_P(Safetensors, Malformed, testing::ValuesIn(kMalformed),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Safetensors, ReadsEveryDType) {
  constexpr const char* kNames[kNumDTypes] = {"F32", "F16", "BF16", "F8_E4M3", "I8",
                                              "U8",  "I32", "I64",  "BOOL"};
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const int bytes = 3 * dtype_bytes(dtype);
    const auto entries = parse(one(kNames[i], "[3]", fmt::format("[0,{}]", bytes), bytes));
    ASSERT_TRUE(entries.ok()) << entries.error().message;
    EXPECT_EQ(entries->front().dtype, dtype);
    EXPECT_EQ(entries->front().bytes(), static_cast<uint64_t>(bytes));
  }
}

TEST(Safetensors, EntriesPointIntoTheFileAndComeSorted) {
  const std::string header = "{" + tensor("b", "U8", "[2]", "[0,2]") + "," +
                             tensor("a", "U8", "[]", "[2,3]") + R"(,"__metadata__":{"k":"v"}})";
  const std::string file = file_of(header + "   ", 3);
  const auto entries = parse(file);
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_EQ(entries->size(), 2u);
  const TensorEntry& a = (*entries)[0];
  const TensorEntry& b = (*entries)[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.shape, Shape{});
  EXPECT_EQ(b.begin, 8 + header.size() + 3);
  EXPECT_EQ(a.begin, b.end);
  EXPECT_EQ(static_cast<const void*>(a.data), file.data() + a.begin);
}

// The reference reader accepts them, and files with them exist: an empty tensor has no bytes to disagree about.
TEST(Safetensors, TensorsOfZeroSizeMayShareAnOffset) {
  const auto entries = parse(file_of("{" + tensor("a", "U8", "[0]", "[1,1]") + "," +
                                         tensor("b", "U8", "[2]", "[0,2]") + "," +
                                         tensor("c", "F32", "[3,0]", "[1,1]") + "}",
                                     2));
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(entries->size(), 3u);
}

TEST(Safetensors, AMillionTensorsAreReadInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    header += "\"t" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  }
  header.back() = '}';
  const auto entries = parse(file_of(header));
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(entries->size(), 1'000'000u);
}

TEST(Safetensors, NoChangedByteLeadsOutOfTheFile) {
  const std::string good = file_of("{" + tensor("a", "F32", "[2, 3]", "[0, 24]") + "," +
                                       tensor("b", "U8", "[4]", "[24, 28]") + "}",
                                   28);
  std::mt19937 random(4);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = good;
    for (int edits = 1 + static_cast<int>(random() % 2); edits > 0; --edits) {
      file[random() % file.size()] = static_cast<char>(random() % 256);
    }
    if (random() % 8 == 0) file.resize(random() % file.size());
    const auto entries = parse(file);
    if (!entries.ok()) continue;
    ++accepted;
    for (const TensorEntry& entry : *entries) {
      ASSERT_LE(entry.begin, entry.end);
      ASSERT_LE(entry.end, file.size());
      ASSERT_EQ(entry.shape.elements() * dtype_bytes(entry.dtype),
                static_cast<int64_t>(entry.bytes()));
    }
  }
  EXPECT_GT(accepted, 100);  // changes in the data or in a name
}

}  // namespace
}  // namespace switchyard::checkpoint
