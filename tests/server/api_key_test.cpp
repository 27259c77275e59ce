// SPDX-License-Identifier: Apache-2.0
#include "serve/api_key.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "server/client.h"
#include "server/fixture.h"

namespace switchyard {
namespace {

TEST(ApiKeys, OnlyWholeKeysAreAccepted) {
  serve::ApiKeys keys;
  ASSERT_TRUE(keys.add("secret").ok());
  ASSERT_TRUE(keys.add("other-key").ok());
  EXPECT_TRUE(keys.accepts("Bearer secret"));
  EXPECT_TRUE(keys.accepts("bearer other-key"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "secret", "Basic secret", "Bearer secre",
                            "Bearer secrets", "Bearer secret ", "Bearer  secret"})
    EXPECT_FALSE(keys.accepts(wrong)) << wrong;
  EXPECT_FALSE(keys.accepts("Bearer secret" + std::string(250, '\0')));
  EXPECT_FALSE(keys.accepts("Bearer " + std::string(100'000, 's')));
}

TEST(ApiKeys, FilesHaveOneALine) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("switchyard-keys-" + std::to_string(::getpid())))
          .string();
  std::ofstream(path) << "# for tests\n\none\r\ntwo";
  serve::ApiKeys keys;
  EXPECT_TRUE(keys.add_file(path).ok());
  EXPECT_TRUE(keys.accepts("Bearer one"));
  EXPECT_TRUE(keys.accepts("Bearer two"));
  EXPECT_FALSE(keys.accepts("Bearer # for tests"));
  std::ofstream(path) << "# nothing\n";
  EXPECT_FALSE(serve::ApiKeys().add_file(path).ok());
  std::remove(path.c_str());
  EXPECT_FALSE(serve::ApiKeys().add_file(path).ok());
  EXPECT_FALSE(keys.add("").ok());
  EXPECT_FALSE(keys.add("two words").ok());
}

TEST(ApiKeys, GuardEverythingButTheProbes) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  ASSERT_TRUE(options.keys.add("secret").ok());
  RunningServer running(&engine, options);
  for (const char* path : {"/live", "/health"}) EXPECT_EQ(get(running.port(), path).status, 200);
  for (const char* path :
       {"/version", "/metrics", "/v1/models", "/v1/models/demo", "/v1/moe/stats"}) {
    const Response refused = get(running.port(), path);
    EXPECT_EQ(refused.status, 401) << path;
    EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(refused.error_code(), "invalid_api_key");
    EXPECT_EQ(get(running.port(), path, "Authorization: Bearer secret\r\n").status, 200) << path;
  }
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"})
    EXPECT_EQ(post(running.port(), path, "{}").status, 401) << path;
  EXPECT_EQ(engine.submitted(), 0u);
}

TEST(ApiKeys, MetricsCanBeOpen) {
  ScriptedEngine engine;
  serve::ServerOptions options;
  ASSERT_TRUE(options.keys.add("secret").ok());
  options.open_metrics = true;
  RunningServer running(&engine, options);
  EXPECT_EQ(get(running.port(), "/metrics").status, 200);
  EXPECT_EQ(get(running.port(), "/version").status, 401);
}

}  // namespace
}  // namespace switchyard
