// SPDX-License-Identifier: Apache-2.0
// Opening folders and files: which files are taken, whether they agree with the index, and what may not be opened.
#include "checkpoint/source.h"

#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "base/temp_folder.h"
#include "base/text_checks.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_text.h"

namespace switchyard::checkpoint {
namespace {
namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kGoodMap = R"({"x": "a.safetensors", "y": "b.safetensors"})";
const float kData[6] = {1, 2, 3, 4, 5, 6};

/// Two shards with one tensor each, x of 2 bytes and y of 3, and an index that is right unless told otherwise.
void write_shards(const TempFolder& folder, const std::string& map = kGoodMap,
                  const std::string& metadata = "{}") {
  folder.write("a.safetensors", file_of("{" + tensor("x", "U8", "[2]", "[0,2]") + "}", 2));
  folder.write("b.safetensors", file_of("{" + tensor("y", "U8", "[3]", "[0,3]") + "}", 3));
  folder.write(kIndex, fmt::format(R"({{"metadata": {}, "weight_map": {}}})", metadata, map));
}

void expect_refused(const std::string& path, std::string_view part) {
  const Result<Source> source = open_checkpoint(path);
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().code, Code::bad_file);
  EXPECT_TRUE(has(source.error().message, path));
  EXPECT_TRUE(has(source.error().message, part));
}

TEST(Source, WhatTheWriterWritesReadsBack) {
  const TempFolder folder;
  const int32_t ids[2] = {7, 8};
  ASSERT_TRUE(write_safetensors(folder.path("model.safetensors"),
                                {{"w", TensorView::of(kData, {2, 3})},
                                 {"ids", TensorView::of(ids, {2})},
                                 {"none", TensorView::of(kData, {0, 3})}},
                                {{"made_by", "test"}})
                  .ok());
  const Result<Source> source = open_checkpoint(folder.path());
  ASSERT_TRUE(source.ok()) << source.error().message;
  ASSERT_EQ(source->tensors().size(), 3u);
  EXPECT_EQ(source->tensors()[0].name, "ids");  // sorted
  const TensorEntry* w = source->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(w->data, kData, sizeof(kData)), 0);
  source->drop(*w);
  EXPECT_EQ(std::memcmp(w->data, kData, sizeof(kData)), 0);
  EXPECT_EQ(source->total_bytes(), 32u);
  EXPECT_EQ(source->file_of(*w), folder.path("model.safetensors"));
  EXPECT_EQ(source->find("nothing"), nullptr);
  EXPECT_EQ(source->find("x"), nullptr);  // sorts behind all
}

TEST(Source, SharedBytesOutliveTheSource) {
  const TempFolder folder;
  ASSERT_TRUE(
      write_safetensors(folder.path("model.safetensors"), {{"w", TensorView::of(kData, {6})}})
          .ok());
  Storage kept;
  {
    const Result<Source> source = open_checkpoint(folder.path());
    ASSERT_TRUE(source.ok());
    kept = source->share(*source->find("w"));
  }
  EXPECT_EQ(std::memcmp(kept.data(), kData, sizeof(kData)), 0);
}

TEST(Source, EntriesKeepTheirPlaceWhenItMoves) {
  const TempFolder folder;
  write_shards(folder);
  Result<Source> opened = open_checkpoint(folder.path());
  ASSERT_TRUE(opened.ok());
  const TensorEntry* y = opened->find("y");
  const Source moved = *std::move(opened);
  EXPECT_EQ(moved.find("y"), y);
  static_assert(!std::is_copy_constructible_v<Source>);
}

TEST(Source, TakesShardNamesFromTheIndex) {
  const TempFolder folder;
  write_shards(folder, kGoodMap, R"({"total_size": 5})");
  folder.write("model.safetensors", "not looked at");
  folder.write("c.safetensors", "not looked at");
  const Result<Source> source = open_checkpoint(folder.path());
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->files().size(), 2u);
  EXPECT_EQ(source->find("y")->bytes(), 3u);
}

TEST(Source, TakesTheOnlyFileOfAFolder) {
  const TempFolder folder;
  folder.write("weights.safetensors", file_of("{" + tensor("x", "U8", "[2]", "[0,2]") + "}", 2));
  folder.write("config.json", "{}");
  EXPECT_TRUE(open_checkpoint(folder.path()).ok());
  EXPECT_TRUE(open_checkpoint(folder.path("weights.safetensors")).ok());
}

TEST(Source, OpeningReadsNoWeights) {
  // A hole of a terabyte: touching it all would take minutes and more memory than there is. The thread sanitizer's address
  // space does not always have so much in one piece; 64 GiB are more than memory too.
#ifdef __SANITIZE_THREAD__
  constexpr uint64_t kHole = uint64_t{1} << 36;
#else
  constexpr uint64_t kHole = uint64_t{1} << 40;
#endif
  const TempFolder folder;
  const std::string path = folder.write(
      "model.safetensors",
      file_of("{" + tensor("x", "U8", fmt::format("[{}]", kHole), fmt::format("[0,{}]", kHole)) +
              "}"));
  std::error_code error;
  fs::resize_file(path, fs::file_size(path) + kHole, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  const Result<Source> source = open_checkpoint(folder.path());
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->total_bytes(), kHole);
}

TEST(Source, ReadsTheDemonstrationModel) {
  const std::string folder = SWITCHYARD_SOURCE_DIR "/models/demo";
  const Result<Source> source = open_checkpoint(folder);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const Json index = *read_json_file(folder + "/" + kIndex);
  EXPECT_EQ(source->tensors().size(), index.find("weight_map")->as_object().size());
  EXPECT_EQ(source->files().size(), 3u);
}

struct IndexCase {
  const char* name;
  const char* says;
  const char* map;
  const char* metadata = "{}";
};

class BadIndex : public testing::TestWithParam<IndexCase> {};

TEST_P(BadIndex, IsRefusedWithItsReason) {
  const TempFolder folder;
  write_shards(folder, GetParam().map, GetParam().metadata);
  expect_refused(folder.path(), GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(
    Source, BadIndex,
    testing::Values(
        IndexCase{"missing_shard", "c.safetensors: shard is missing",
                  R"({"x": "a.safetensors", "y": "c.safetensors"})"},
        IndexCase{"tensor_absent_from_its_shard", "tensor 'z' is not in its shard b.safetensors",
                  R"({"x": "a.safetensors", "y": "b.safetensors", "z": "b.safetensors"})"},
        IndexCase{"wrong_shard", "tensor 'x': the index says b.safetensors, found in a.safetensors",
                  R"({"x": "b.safetensors", "y": "a.safetensors"})"},
        IndexCase{"unlisted_tensor", "tensor 'x' of a.safetensors is not in the index",
                  R"({"y": "b.safetensors", "w": "a.safetensors"})"},
        IndexCase{"tensor_listed_twice", "\"x\" occurs twice",
                  R"({"x": "a.safetensors", "y": "b.safetensors", "x": "b.safetensors"})"},
        IndexCase{"parent_folder", "plain name of a file in the same folder, found \"../a.saf",
                  R"({"x": "../a.safetensors", "y": "b.safetensors"})"},
        IndexCase{"absolute_path", "plain name", R"({"x": "/etc/passwd", "y": "b.safetensors"})"},
        IndexCase{"two_dots", "plain name", R"({"x": "..", "y": "b.safetensors"})"},
        IndexCase{"sub_folder", "plain name", R"({"x": "sub/a.safetensors"})"},
        IndexCase{"nul_in_name", "plain name", R"({"x": "a.safetensors\u0000.txt"})"},
        IndexCase{"empty_name", "plain name", R"({"x": ""})"},
        IndexCase{"name_is_a_number", "found 3", R"({"x": 3})"},
        IndexCase{"map_is_empty", "found an empty one", "{}"},
        IndexCase{"map_is_a_list", "found array", "[]"},
        IndexCase{"wrong_total", "metadata.total_size is 6, the tensors take 5 bytes", kGoodMap,
                  R"({"total_size": 6})"},
        IndexCase{"wrong_total_as_real", "metadata.total_size is 6", kGoodMap,
                  R"({"total_size": 6.0})"},
        IndexCase{"negative_total", "found -5", kGoodMap, R"({"total_size": -5})"},
        IndexCase{"huge_total", "found 1e+300", kGoodMap, R"({"total_size": 1e300})"},
        IndexCase{"total_above_int64", "found 18446744073709551615", kGoodMap,
                  R"({"total_size": 18446744073709551615})"},
        IndexCase{"total_as_text", "found \"5\"", kGoodMap, R"({"total_size": "5"})"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Source, TotalMayBeARealOrAbsent) {
  for (const char* metadata : {R"({"total_size": 5.0})", "{}", "null"}) {
    const TempFolder folder;
    write_shards(folder, kGoodMap, metadata);
    EXPECT_TRUE(open_checkpoint(folder.path()).ok()) << metadata;
  }
}

TEST(Source, RefusesATensorInTwoShards) {
  const TempFolder folder;
  write_shards(folder);
  folder.write("b.safetensors", file_of("{" + tensor("y", "U8", "[3]", "[0,3]") + "," +
                                            tensor("x", "U8", "[1]", "[3,4]") + "}",
                                        4));
  expect_refused(folder.path(), "tensor 'x' is in two shards");
}

TEST(Source, RefusesATruncatedIndexOrShard) {
  const TempFolder folder;
  write_shards(folder);
  folder.write("a.safetensors", file_of("{" + tensor("x", "U8", "[2]", "[0,2]") + "}", 1));
  expect_refused(folder.path(), "a.safetensors: tensor 'x'");
  folder.write(kIndex, R"({"weight_map": {"x": "a.safe)");
  expect_refused(folder.path(), "index.json: not valid JSON at byte");
  folder.write(kIndex, "{}");
  expect_refused(folder.path(), "'weight_map' with at least one tensor, found none");
}

TEST(Source, RefusesLinksThatLeadOutside) {
  const TempFolder folder, outside;
  write_shards(folder);
  fs::rename(folder.path("a.safetensors"), outside.path("a.safetensors"));
  fs::create_symlink(outside.path("a.safetensors"), folder.path("a.safetensors"));
  expect_refused(folder.path(), "leads outside the model's folder");
  // Nor may a folder without an index, but a path that the user typed is his own word.
  fs::remove(folder.path(kIndex));
  fs::remove(folder.path("b.safetensors"));
  expect_refused(folder.path(), "leads outside the model's folder");
  EXPECT_TRUE(open_checkpoint(folder.path("a.safetensors")).ok());
}

TEST(Source, FollowsTheLinksOfADownloadCache) {
  const TempFolder cache;
  cache.write("blobs/1234", file_of("{" + tensor("x", "U8", "[2]", "[0,2]") + "}", 2));
  fs::create_directories(cache.path("snapshots/abcd"));
  fs::create_symlink("../../blobs/1234", cache.path("snapshots/abcd/model.safetensors"));
  const Result<Source> source = open_checkpoint(cache.path("snapshots/abcd"));
  EXPECT_TRUE(source.ok()) << source.error().message;
}

TEST(Source, RefusesFoldersThatDoNotSayWhichFile) {
  const TempFolder folder;
  expect_refused(folder.path(), "found 0 such files");
  write_shards(folder);
  fs::remove(folder.path(kIndex));
  expect_refused(folder.path(), "found 2 such files");
  expect_refused(folder.path("absent"), "cannot open");
}

}  // namespace
}  // namespace switchyard::checkpoint
