// SPDX-License-Identifier: Apache-2.0
// The queue's limits: who is turned away, and with which words.
#include "schedule/queue_limits.h"

#include <gtest/gtest.h>

namespace switchyard::schedule {
namespace {

TEST(QueueCount, RefusesTheRequestThatIsOneTooMany) {
  QueueCount queue({.max_requests = 2});
  ASSERT_TRUE(queue.add_request().ok());
  ASSERT_TRUE(queue.add_request().ok());
  const Status refused = queue.add_request();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::overloaded);
  EXPECT_NE(refused.error().message.find("queue_full: 2 requests wait already, at most 2 may"),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(queue.requests(), 2);
  queue.leave(0);
  EXPECT_TRUE(queue.add_request().ok());
}

TEST(QueueCount, RefusesTheTokensThatAreTooMany) {
  QueueCount queue({.max_tokens = 100});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.add_request().ok());
  ASSERT_TRUE(queue.add_tokens(60).ok());
  const Status refused = queue.add_tokens(41);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::overloaded);
  EXPECT_NE(refused.error().message.find(
                "queue_tokens_full: 60 prompt tokens wait already, 41 more would exceed 100"),
            std::string::npos)
      << refused.error().message;
  EXPECT_EQ(queue.tokens(), 60);
  EXPECT_TRUE(queue.add_tokens(40).ok());
  queue.leave(60);
  queue.leave(40);
  EXPECT_EQ(queue.tokens(), 0);
}

TEST(QueueCount, OneRequestAboveTheTokenLimitIsNotRefusedForEver) {
  QueueCount queue({.max_tokens = 100});
  ASSERT_TRUE(queue.add_request().ok());
  EXPECT_TRUE(queue.add_tokens(500).ok());
  ASSERT_TRUE(queue.add_request().ok());
  EXPECT_FALSE(queue.add_tokens(1).ok());
}

TEST(QueueLimits, AreNotNegative) {
  EXPECT_TRUE(QueueLimits{}.check().ok());
  EXPECT_NE(
      QueueLimits{.max_requests = -1}.check().error().message.find("max_queued_requests is -1"),
      std::string::npos);
  EXPECT_NE(QueueLimits{.max_tokens = -2}.check().error().message.find("max_queued_tokens is -2"),
            std::string::npos);
}

TEST(QueueCount, ZeroIsNoLimit) {
  QueueCount queue({});
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(queue.add_request().ok());
    ASSERT_TRUE(queue.add_tokens(1 << 20).ok());
  }
}

}  // namespace
}  // namespace switchyard::schedule
