// SPDX-License-Identifier: Apache-2.0
// Exit codes of the program: one table for all commands.
#pragma once
#include "switchyard/result.h"

namespace switchyard::cli {

enum ExitCode : int {
  kOk = 0,
  kFailure = 1,        ///< something failed while running
  kUsage = 2,          ///< wrong arguments
  kInvalidModel = 3,   ///< a file of the model is damaged or inconsistent
  kUnsupported = 4,    ///< well formed, but this program cannot run it
  kOutOfMemory = 5,    ///< does not fit
  kCannotBind = 6,     ///< the address or port is not to be had
  kInterrupted = 130,  ///< Ctrl-C
};

constexpr ExitCode exit_code(Code code) noexcept {
  constexpr ExitCode kCodes[] = {kUsage,       kInvalidModel, kUnsupported, kOutOfMemory, kFailure,
                                 kInterrupted, kFailure,      kFailure,     kFailure,     kFailure};
  return kCodes[static_cast<unsigned char>(code)];
}

/// Writes the error as the one message of the program on standard error, and gives its exit code.
ExitCode report(const Error& error);

}  // namespace switchyard::cli
