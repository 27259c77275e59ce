// SPDX-License-Identifier: Apache-2.0
// safetensors: round trip, and every malformed class with a message that names the file.
#include "checkpoint/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"

namespace switchyard::checkpoint {
namespace {
namespace fs = std::filesystem;

// A file of a header and `data_bytes` zero bytes; the length field can lie.
std::string file_of(const std::string& header, size_t data_bytes = 0,
                    std::optional<uint64_t> length = std::nullopt) {
  std::string file(8, '\0');
  const uint64_t n = length.value_or(header.size());
  std::memcpy(file.data(), &n, 8);
  return file + header + std::string(data_bytes, '\0');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return fmt::format(R"("{}": {{"dtype": "{}", "shape": {}, "data_offsets": {}}})", name, dtype,
                     shape, offsets);
}

Result<std::vector<TensorEntry>> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
}

struct Case {
  const char* name;
  std::string file;
  Code code = Code::bad_file;
};

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t data) {
  return file_of("{" + tensor("a", dtype, shape, offsets) + "}", data);
}

const Case kMalformed[] = {
    {"empty_file", ""},
    {"seven_bytes", "1234567"},
    {"header_length_zero", file_of("", 8, 0)},
    {"header_length_past_the_end", file_of("{}", 0, 100)},
    {"header_length_above_the_cap", file_of("{}", 0, kMaxHeaderBytes + 1)},
    {"header_length_all_ones", file_of("{}", 0, ~uint64_t{0})},
    {"header_starts_with_space", file_of(" {}")},
    {"header_is_an_array", file_of("[]")},
    {"header_invalid_utf8", file_of("{\"\xFF\": 1}")},
    {"header_trailing_bytes", file_of("{}x")},
    {"header_too_deep", file_of("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}")},
    {"header_nan", file_of(R"({"a": NaN})")},
    {"duplicate_tensor", file_of("{" + tensor("a", "U8", "[1]", "[0,1]") + "," +
                                     tensor("a", "U8", "[1]", "[0,1]") + "}",
                                 1)},
    {"tensor_is_no_object", file_of(R"({"a": 1})")},
    {"missing_dtype", file_of(R"({"a": {"shape": [1], "data_offsets": [0, 1]}})", 1)},
    {"missing_shape", file_of(R"({"a": {"dtype": "U8", "data_offsets": [0, 1]}})", 1)},
    {"missing_offsets", file_of(R"({"a": {"dtype": "U8", "shape": [1]}})", 1)},
    {"extra_field",
     file_of(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1], "scale": 2}})", 1)},
    {"unknown_dtype", one("Q9", "[1]", "[0,1]", 1)},
    {"four_bit_dtype", one("F4", "[1]", "[0,1]", 1), Code::unsupported},
    {"known_but_unread_dtype", one("F64", "[1]", "[0,8]", 8), Code::unsupported},
    {"negative_extent", one("U8", "[-1]", "[0,1]", 1)},
    {"fractional_extent", one("U8", "[1.5]", "[0,1]", 1)},
    {"extent_above_int64", one("U8", "[18446744073709551615]", "[0,1]", 1)},
    {"shape_overflows", one("F32", "[4611686018427387904, 4]", "[0,0]", 0)},
    {"bytes_overflow", one("F32", "[4611686018427387904]", "[0,0]", 0)},
    {"too_many_dimensions", one("U8", "[1,1,1,1,1,1]", "[0,1]", 1)},
    {"one_offset", one("U8", "[1]", "[0]", 1)},
    {"three_offsets", one("U8", "[1]", "[0,1,2]", 1)},
    {"negative_offset", one("U8", "[1]", "[-1,0]", 1)},
    {"reversed_offsets", one("U8", "[1]", "[1,0]", 1)},
    {"offsets_beyond_the_end", one("U8", "[4]", "[0,4]", 2)},
    {"length_unequal_to_shape", one("F32", "[2]", "[0,4]", 4)},
    {"overlap", file_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "," +
                            tensor("b", "U8", "[4]", "[2,6]") + "}",
                        6)},
    {"hole", file_of("{" + tensor("a", "U8", "[2]", "[0,2]") + "," +
                         tensor("b", "U8", "[2]", "[4,6]") + "}",
                     6)},
    {"hole_at_the_start", one("U8", "[2]", "[2,4]", 4)},
    {"data_beyond_the_last_tensor", one("U8", "[2]", "[0,2]", 9)},
    {"metadata_is_no_object", file_of(R"({"__metadata__": 1})")},
    {"metadata_value_is_no_string", file_of(R"({"__metadata__": {"a": 1}})")},
};

class Malformed : public testing::TestWithParam<Case> {};

TEST_P(Malformed, IsRefusedByName) {
  const auto entries = parse(GetParam().file);
  ASSERT_FALSE(entries.ok());
  EXPECT_EQ(entries.error().code, GetParam().code);
  EXPECT_NE(entries.error().message.find("x.safetensors"), std::string::npos)
      << entries.error().message;
}

INSTANTIATE_TEST_SUITE_P(Safetensors, Malformed, testing::ValuesIn(kMalformed),
                         [](const auto& c) { return std::string(c.param.name); });

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
  for (int i = 0; i < 1000000; ++i) {
    header +=
        fmt::format("{}{}", i > 0 ? "," : "", tensor(fmt::format("t{}", i), "U8", "[0]", "[0,0]"));
  }
  const auto entries = parse(file_of(header + "}"));
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  EXPECT_EQ(entries->size(), 1000000u);
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / fmt::format("switchyard_checkpoint_{}", getpid());
    fs::create_directories(path_);
  }
  void TearDown() override { fs::remove_all(path_); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(write_file_atomic(path(name), content).ok());
  }
  // Two shards with one tensor each, and an index that is right unless told otherwise.
  void write_shards(const std::string& map, const std::string& metadata = "{}") const {
    write("a.safetensors", file_of("{" + tensor("x", "U8", "[2]", "[0,2]") + "}", 2));
    write("b.safetensors", file_of("{" + tensor("y", "U8", "[3]", "[0,3]") + "}", 3));
    write("model.safetensors.index.json",
          fmt::format(R"({{"metadata": {}, "weight_map": {}}})", metadata, map));
  }
  void expect_refused(const std::string& part) const {
    const auto source = open_checkpoint(path_.string());
    ASSERT_FALSE(source.ok());
    EXPECT_EQ(source.error().code, Code::bad_file);
    EXPECT_NE(source.error().message.find(part), std::string::npos) << source.error().message;
  }
  fs::path path_;
};

constexpr const char* kGoodMap = R"({"x": "a.safetensors", "y": "b.safetensors"})";

TEST_F(Folder, WriterReadsBack) {
  const float data[6] = {1, 2, 3, 4, 5, 6};
  const int32_t ids[2] = {7, 8};
  ASSERT_TRUE(
      write_safetensors(path("model.safetensors"),
                        {{"w", TensorView::of(data, {2, 3})}, {"ids", TensorView::of(ids, {2})}},
                        {{"made_by", "test"}})
          .ok());
  const auto source = open_checkpoint(path_.string());
  ASSERT_TRUE(source.ok()) << source.error().message;
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->tensors()[0].name, "ids");  // sorted
  const TensorEntry* w = source->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(w->data, data, sizeof(data)), 0);
  source->drop(*w);
  EXPECT_EQ(std::memcmp(w->data, data, sizeof(data)), 0);
  EXPECT_EQ(source->total_bytes(), 32u);
  EXPECT_EQ(source->find("nothing"), nullptr);
}

TEST_F(Folder, SharedBytesOutliveTheSource) {
  const float data[2] = {1, 2};
  ASSERT_TRUE(
      write_safetensors(path("model.safetensors"), {{"w", TensorView::of(data, {2})}}).ok());
  Storage kept;
  {
    const auto source = open_checkpoint(path_.string());
    ASSERT_TRUE(source.ok());
    kept = source->share(*source->find("w"));
  }
  EXPECT_EQ(std::memcmp(kept.data(), data, sizeof(data)), 0);
}

TEST_F(Folder, ShardsByIndex) {
  write_shards(kGoodMap, R"({"total_size": 5})");
  const auto source = open_checkpoint(path_.string());
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->files().size(), 2u);
  EXPECT_EQ(source->find("y")->bytes(), 3u);
}

TEST_F(Folder, IndexWithMissingShard) {
  write_shards(R"({"x": "a.safetensors", "y": "c.safetensors"})");
  expect_refused("c.safetensors");
}
TEST_F(Folder, IndexWithTensorAbsentFromItsShard) {
  write_shards(R"({"x": "a.safetensors", "y": "b.safetensors", "z": "b.safetensors"})");
  expect_refused("'z'");
}
TEST_F(Folder, IndexThatNamesTheWrongShard) {
  write_shards(R"({"x": "b.safetensors", "y": "a.safetensors"})");
  expect_refused("the index says");
}
TEST_F(Folder, TensorThatTheIndexDoesNotKnow) {
  write_shards(R"({"y": "b.safetensors", "w": "a.safetensors"})");
  expect_refused("not in the index");
}
TEST_F(Folder, TensorInTwoShards) {
  write_shards(R"({"x": "a.safetensors", "y": "b.safetensors"})");
  write("b.safetensors", file_of("{" + tensor("y", "U8", "[3]", "[0,3]") + "," +
                                     tensor("x", "U8", "[1]", "[3,4]") + "}",
                                 4));
  expect_refused("two shards");
}
TEST_F(Folder, IndexWithWrongTotal) {
  write_shards(kGoodMap, R"({"total_size": 6})");
  expect_refused("total_size");
}
TEST_F(Folder, IndexThatEscapesTheFolder) {
  write_shards(R"({"x": "../a.safetensors", "y": "b.safetensors"})");
  expect_refused("plain name");
}
TEST_F(Folder, ShardThatIsALinkOutside) {
  write_shards(kGoodMap);
  const fs::path outside = path_.parent_path() / fmt::format("outside_{}.safetensors", getpid());
  fs::rename(path_ / "a.safetensors", outside);
  fs::create_symlink(outside, path_ / "a.safetensors");
  expect_refused("outside");
  fs::remove(outside);
}
TEST_F(Folder, TruncatedIndex) {
  write_shards(kGoodMap);
  write("model.safetensors.index.json", R"({"weight_map": {"x": "a.safe)");
  expect_refused("model.safetensors.index.json");
}
TEST_F(Folder, IndexWithoutMap) {
  write_shards(kGoodMap);
  write("model.safetensors.index.json", "{}");
  expect_refused("weight_map");
}
TEST_F(Folder, NoWeightsAtAll) { expect_refused("found 0"); }
TEST_F(Folder, SeveralFilesWithoutIndex) {
  write_shards(kGoodMap);
  fs::remove(path_ / "model.safetensors.index.json");
  expect_refused("found 2");
}

}  // namespace
}  // namespace switchyard::checkpoint
