// SPDX-License-Identifier: Apache-2.0
// Result carries a value or an error, and an error knows its words and its line.
#include "base/result.h"

#include <memory>

#include <gtest/gtest.h>

#include "base/check.h"

namespace switchyard {
namespace {

constexpr int kFailLine = __LINE__ + 3;
Result<int> parse(int x) {
  if (x < 0) {
    return fail(Code::bad_request, "expected at least {}, found {}", 0, x);
  }
  return x;
}

Result<int> twice(int x) {
  SWITCHYARD_ASSIGN(const int value, parse(x));
  return 2 * value;
}

Status both(int x, int y) {
  SWITCHYARD_TRY(parse(x));
  SWITCHYARD_TRY(parse(y));
  return {};
}

TEST(Result, HoldsAValue) {
  const Result<int> result = twice(21);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result);
  EXPECT_EQ(*result, 42);
}

TEST(Result, PassesTheErrorUpUnchanged) {
  const Result<int> result = twice(-3);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::bad_request);
  EXPECT_EQ(result.error().message, "expected at least 0, found -3");
}

TEST(Result, ErrorKnowsTheLineThatMadeIt) {
  const Result<int> result = parse(-1);
  EXPECT_EQ(result.error().line, kFailLine);
  EXPECT_TRUE(std::string_view(result.error().file).ends_with("result_test.cpp"));
}

TEST(Result, StatusStopsAtTheFirstError) {
  EXPECT_TRUE(both(1, 2).ok());
  EXPECT_EQ(both(1, -2).error().message, "expected at least 0, found -2");
  EXPECT_EQ(both(-1, -2).error().message, "expected at least 0, found -1");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> owned = *std::move(result);
  EXPECT_EQ(*owned, 5);
}

TEST(Result, ValueThrowsForThoseWhoLikeExceptions) {
  EXPECT_EQ(parse(7).value(), 7);
  try {
    parse(-7).value();
    FAIL() << "nothing was thrown";
  } catch (const ResultError& error) {
    EXPECT_STREQ(error.what(), "expected at least 0, found -7");
    EXPECT_EQ(error.error().code, Code::bad_request);
  }
  EXPECT_THROW(both(-1, 0).value(), ResultError);
}

TEST(Result, ContextStandsInFront) {
  const Error error = with_context(fail(Code::bad_file, "cut short"), "model.bin");
  EXPECT_EQ(error.message, "model.bin: cut short");
  EXPECT_EQ(error.code, Code::bad_file);
}

TEST(Result, EveryCodeHasItsName) {
  EXPECT_EQ(code_name(Code::bad_request), "bad_request");
  EXPECT_EQ(code_name(Code::out_of_memory), "out_of_memory");
  EXPECT_EQ(code_name(Code::internal), "internal");
}

TEST(CheckDeathTest, SaysWhereAndWithWhichValues) {
  const int a = 3;
  EXPECT_DEATH(SWITCHYARD_CHECK(a < 2, "a is {}", a), "result_test.cpp:[0-9]+: a < 2 a is 3");
  EXPECT_DEATH(SWITCHYARD_UNREACHABLE("state {}", a), "unreachable state 3");
  SWITCHYARD_CHECK(a == 3);
}

}  // namespace
}  // namespace switchyard
