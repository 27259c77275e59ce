// SPDX-License-Identifier: Apache-2.0
// The program's edges: help, wrong arguments, exit codes, and that errors are one message on
// standard error.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace switchyard {
namespace {

/// One line "switchyard: ..." on standard error, nothing on standard output.
void expect_refused(const Outcome& outcome, int code, const std::string& part) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("switchyard: ", 0), 0u) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

TEST(Usage, HelpAndVersionGoToStandardOutput) {
  const Outcome help = run_program({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* command :
       {"run", "inspect", "bench", "record", "stats", "plan", "check", "doctor"})
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  EXPECT_EQ(run_program({"run", "--help"}).code, 0);
  const Outcome version = run_program({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.rfind("switchyard ", 0), 0u);
}

TEST(Usage, NothingIsWrongToo) {
  const Outcome outcome = run_program({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("inspect"), std::string::npos);
}

TEST(Usage, UnknownOptionsSuggestTheNearest) {
  expect_refused(run_program({"run", "models/demo", "--temprature", "0"}), 2,
                 "unknown option --temprature; did you mean --temperature?");
  expect_refused(run_program({"run", "models/demo", "--seeed=3"}), 2,
                 "unknown option --seeed; did you mean --seed?");
  expect_refused(run_program({"bench", "latency", "models/demo", "--repetition", "2"}), 2,
                 "did you mean --repetitions?");
  const Outcome far = run_program({"run", "models/demo", "--zzzzzzzz"});
  expect_refused(far, 2, "unknown option --zzzzzzzz");
  EXPECT_EQ(far.err.find("did you mean"), std::string::npos);
}

TEST(Usage, UnknownCommandsSuggestTheNearest) {
  expect_refused(run_program({"inspct", "models/demo"}), 2, "did you mean inspect?");
}

TEST(Usage, WrongValuesAreRefusedBeforeTheLoad) {
  expect_refused(run_program({"run", "/nonexistent", "--temperature", "warm"}), 2, "warm");
  expect_refused(run_program({"run", "/nonexistent", "--temperature", "-1"}), 2,
                 "temperature is -1");
  expect_refused(run_program({"run", "/nonexistent", "--top-p", "1.5"}), 2, "top_p is 1.5");
  expect_refused(run_program({"run", "/nonexistent", "-n", "0"}), 2, "max_tokens is 0");
  expect_refused(run_program({"run", "/nonexistent", "--stop", ""}), 2, "stop[0] is empty");
  expect_refused(run_program({"run", "/nonexistent", "--dtype", "int3"}), 2, "int3");
  expect_refused(run_program({"run", "/nonexistent", "--greedy", "--temperature", "1"}), 2,
                 "--greedy");
  expect_refused(run_program({"run"}), 2, "MODEL");
  expect_refused(run_program({"bench"}), 2, "subcommand");
  expect_refused(run_program({"inspect"}), 2, "MODEL");
}

// Which of the reasons it is depends on the machine; that there is no such device does not.
TEST(Usage, DevicesAndGeometriesAreNamedInTheirErrors) {
  const std::vector<std::string> run = {"run", "models/demo", "-p", "x", "--device"};
  const auto on = [&run](const char* device) {
    auto arguments = run;
    arguments.push_back(device);
    return run_program(arguments);
  };
  expect_refused(on("gpu"), 2, "there is no device 'gpu': expected cpu, cuda or cuda:N");
  const Outcome absent = on("cuda:99");
  EXPECT_NE(absent.code, 0);
  EXPECT_NE(absent.err.find("CUDA"), std::string::npos) << absent.err;
  expect_refused(run_program({"bench", "latency", "--random", "gpt"}), 2, "mixtral-8x7b");
  expect_refused(run_program({"bench", "latency"}), 2, "--random NAME");
  expect_refused(run_program({"bench", "latency", "--device", "cuda", "--random", "olmoe-1b-7b",
                              "--random-spread", "nan"}),
                 2, "give a spread from 0");
  expect_refused(run_program({"bench", "latency", "models/demo", "--random-spread", "1"}), 2,
                 "--random");
  expect_refused(run_program({"serve", "--random", "gpt"}), 2, "mixtral-8x7b");
  expect_refused(run_program({"serve"}), 2, "--random NAME");
}

TEST(ExitCodes, MissingModelIsInvalid) {
  for (const char* command : {"run", "inspect", "check"})
    expect_refused(run_program({command, "/nonexistent"}), 3, "/nonexistent");
}

TEST(ExitCodes, DamagedConfigIsInvalid) {
  TemporaryFolder folder;
  folder.write("config.json", "{\"model_type\": \"qwen3_moe\", ");
  for (const char* command : {"run", "inspect", "check"})
    expect_refused(run_program({command, folder.path()}), 3, "config.json");
}

TEST(ExitCodes, UnknownArchitectureIsUnsupported) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "bert", "architectures": ["BertModel"]})");
  expect_refused(run_program({"run", folder.path(), "-p", "x"}), 4, "bert");
  expect_refused(run_program({"inspect", folder.path()}), 4, "bert");
  const Outcome check = run_program({"check", folder.path()});
  EXPECT_EQ(check.code, 4);
  EXPECT_NE(check.out.find("bert"), std::string::npos);
}

TEST(ExitCodes, WhatDoesNotFitIsRefusedBeforeTheWeightsAreRead) {
  TemporaryFolder folder;
  folder.copy_demo("tokenizer.json");
  folder.copy_demo("tokenizer_config.json");
  folder.write("config.json", R"({
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 16384,
    "num_hidden_layers": 200, "num_attention_heads": 128, "num_key_value_heads": 8, "head_dim": 128,
    "num_experts": 512, "num_experts_per_tok": 8, "moe_intermediate_size": 16384,
    "intermediate_size": 16384, "vocab_size": 8192, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "norm_topk_prob": true, "tie_word_embeddings": true, "hidden_act": "silu"})");
  const Outcome outcome = run_program({"run", folder.path(), "-p", "x"});
  expect_refused(outcome, 5, "does not fit");
  for (const char* part : {"weights", "KV cache", "available"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

TEST(ExitCodes, UnknownOperationIsUsage) {
  expect_refused(run_program({"inspect", "kernels", "--op", "grouped_gem"}), 2, "grouped_gemm");
}

}  // namespace
}  // namespace switchyard
