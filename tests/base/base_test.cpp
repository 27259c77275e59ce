// SPDX-License-Identifier: Apache-2.0
// Results, files, random numbers, log, environment and topology.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/files.h"
#include "base/log.h"
#include "base/random.h"
#include "base/result.h"
#include "base/topology.h"

namespace switchyard {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return fail(Code::bad_request, "{} is odd", number);
  return number / 2;
}

Result<int> quarter(int number) {
  SWITCHYARD_ASSIGN(const int h, half(number));
  return half(h);
}

Status check_even(int number) {
  SWITCHYARD_TRY(half(number));
  return {};
}

TEST(Result, PassesValuesAndErrorsUp) {
  EXPECT_EQ(*quarter(12), 3);
  const Result<int> failed = quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::bad_request);
  EXPECT_EQ(failed.error().message, "3 is odd");
  EXPECT_TRUE(std::string(failed.error().file).ends_with("base_test.cpp"));
  EXPECT_GT(failed.error().line, 0);
  EXPECT_FALSE(check_even(1).ok());
  EXPECT_TRUE(check_even(2).ok());
}

TEST(Result, ValueThrowsForThoseWhoLikeIt) {
  EXPECT_EQ(half(4).value(), 2);
  EXPECT_THROW(half(5).value(), ResultError);
  EXPECT_THROW(check_even(5).value(), ResultError);
}

TEST(Result, ContextComesFirst) {
  EXPECT_EQ(with_context(half(1).error(), "config").message, "config: 1 is odd");
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / fmt::format("switchyard_test_{}", getpid());
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) { return (path_ / name).string(); }
  std::filesystem::path path_;
};

TEST_F(Folder, WritesMapsAndLists) {
  ASSERT_TRUE(write_file_atomic(file("b"), "hello").ok());
  ASSERT_TRUE(write_file_atomic(file("a"), "").ok());
  const auto mapped = MappedFile::open(file("b"));
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->text(), "hello");
  mapped->drop(mapped->bytes());
  EXPECT_EQ(mapped->text(), "hello");  // read again from the file
  EXPECT_TRUE(MappedFile::open(file("a"))->bytes().empty());
  EXPECT_EQ(*read_text_file(file("b"), 5), "hello");
  EXPECT_EQ(*list_directory(path_.string()), (std::vector<std::string>{"a", "b"}));
}

TEST_F(Folder, RefusesWhatIsNoFileOrTooLong) {
  ASSERT_TRUE(write_file_atomic(file("b"), "hello").ok());
  ASSERT_EQ(mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(file("missing")).error().code, Code::bad_file);
  EXPECT_EQ(MappedFile::open(path_.string()).error().code, Code::bad_file);
  EXPECT_EQ(MappedFile::open(file("pipe")).error().code, Code::bad_file);
  EXPECT_FALSE(read_text_file(file("b"), 4).ok());
  EXPECT_FALSE(write_file_atomic(file("no/such/folder"), "x").ok());
  EXPECT_FALSE(list_directory(file("b")).ok());
}

// Vectors of the authors' own test file (Random123, kat_vectors: philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UnitNumbersStayBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_LT(unit_float(~0u), 1.0f);
  EXPECT_LT(unit_double(~0u, ~0u), 1.0);
}

TEST(Log, ReachesTheSinkFromItsLevelOn) {
  std::string seen;
  set_log_sink([&](LogLevel, std::string_view text) { seen += std::string(text) + ";"; },
               LogLevel::warning);
  log(LogLevel::info, "no");
  log(LogLevel::warning, "yes {}", 1);
  set_log_sink({});
  log(LogLevel::error, "silent");
  EXPECT_EQ(seen, "yes 1;");
}

TEST(Environment, EmptyIsUnsetAndUnknownIsABug) {
  setenv("SWITCHYARD_KERNEL", "", 1);
  EXPECT_FALSE(environment("SWITCHYARD_KERNEL"));
  setenv("SWITCHYARD_KERNEL", "a=b", 1);
  EXPECT_EQ(environment("SWITCHYARD_KERNEL"), "a=b");
  unsetenv("SWITCHYARD_KERNEL");
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(environment("SWITCHYARD_UNHEARD_OF"), "undocumented");
}

TEST(Topology, HasAtLeastOneCore) {
  EXPECT_GE(topology().cores.size(), 1u);
  EXPECT_GE(topology().num_nodes, 1);
  EXPECT_GT(topology().memory_bytes, 0);
}

}  // namespace
}  // namespace switchyard
