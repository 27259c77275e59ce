// SPDX-License-Identifier: Apache-2.0
// switchyard doctor: what this machine offers, and what to do where something is in the way. One
// line each.
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>

#include "switchyard/version.h"

#include "base/cgroup.h"
#include "base/environment.h"
#include "base/files.h"
#include "base/topology.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "device/cpu_features.h"
#include "device/device.h"
#include "engine/host_memory.h"

namespace switchyard::cli {
namespace {

enum class State : uint8_t { ok, warn };

struct Finding {
  State state = State::ok;
  std::string subject, text;
  std::string advice;  // what to do; only with warn
};

Finding fine(std::string subject, std::string text) {
  return {State::ok, std::move(subject), std::move(text), ""};
}

Finding warning(std::string subject, std::string text, std::string advice) {
  return {State::warn, std::move(subject), std::move(text), std::move(advice)};
}

void examine_cpu(std::vector<Finding>& findings) {
  const CpuFeatures& cpu = cpu_features();
  findings.push_back(fine("cpu", cpu.model));
  const std::string_view level = isa_level_name(cpu.usable);
  std::string text = fmt::format("{} ({})", level, cpu_feature_names(cpu.usable));
  if (!cpu.warning.empty()) {
    findings.push_back(warning("instruction sets", text, cpu.warning));
  } else if (cpu.usable != cpu.detected) {
    findings.push_back(
        warning("instruction sets", text,
                fmt::format("SWITCHYARD_MAX_ISA holds back {}; unset it for full speed",
                            isa_level_name(cpu.detected))));
  } else if (level == "baseline") {
    findings.push_back(
        warning("instruction sets", "none of AVX2, AVX-512 and AMX",
                "only the plain reference kernels can run here: expect it to be slow"));
  } else {
    findings.push_back(fine("instruction sets", std::move(text)));
  }
  const bool has_amx = (cpu.usable & kAmxBf16) != 0;
  findings.push_back(fine("amx", has_amx ? "bf16 tiles, and the kernel permits them" : "absent"));
}

void examine_topology(std::vector<Finding>& findings) {
  const Topology& machine = topology();
  findings.push_back(fine(
      "cores", fmt::format("{} usable, on {} socket{} and {} NUMA node{}", machine.cores.size(),
                           machine.num_sockets, machine.num_sockets == 1 ? "" : "s",
                           machine.num_nodes, machine.num_nodes == 1 ? "" : "s")));
  findings.push_back(
      fine("caches", fmt::format("L1d {}, L2 {}, L3 {}", size_text(machine.l1d_bytes),
                                 size_text(machine.l2_bytes), size_text(machine.l3_bytes))));
  const auto cores = static_cast<int>(machine.cores.size());
  if (machine.cpu_quota > 0 && machine.cpu_quota < cores)
    findings.push_back(warning(
        "cpu quota",
        fmt::format("the control group grants {} of {} cores", machine.cpu_quota, cores),
        fmt::format("{} threads are used by default; more would be throttled", machine.cpu_quota)));
}

void examine_memory(std::vector<Finding>& findings) {
  constexpr int64_t kScarce = int64_t{2} << 30;
  const engine::HostMemory memory = engine::host_memory();
  const std::string text =
      fmt::format("{} available of {}", size_text(memory.available), size_text(memory.total));
  if (memory.available < kScarce) {
    findings.push_back(warning("memory", text, "only small models will fit: free some memory"));
  } else {
    findings.push_back(fine("memory", text));
  }
  const CgroupLimits limits = read_cgroup_limits();
  findings.push_back(fine(
      "control group",
      fmt::format("cpus {}, memory {}", limits.cpus > 0 ? std::to_string(limits.cpus) : "unlimited",
                  limits.memory_bytes > 0 ? size_text(limits.memory_bytes) : "unlimited")));
}

/// The chosen word of "always [madvise] never".
std::string chosen_word(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return text.substr(open + 1, close - open - 1);
}

void examine_huge_pages(std::vector<Finding>& findings) {
  constexpr const char* kPath = "/sys/kernel/mm/transparent_hugepage/enabled";
  const auto text = read_text_file(kPath, 4096);
  const std::string mode = text.ok() ? chosen_word(*text) : "";
  if (mode == "always" || mode == "madvise") {
    findings.push_back(fine("huge pages", "transparent, " + mode));
  } else {
    findings.push_back(warning("huge pages", mode.empty() ? "not offered by this system" : mode,
                               fmt::format("weights will cost more address translation; as root: "
                                           "echo madvise > {}",
                                           kPath)));
  }
}

void examine_limits(std::vector<Finding>& findings) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  constexpr rlim_t kFew = 256;
  const std::string text = fmt::format("{} open files", files.rlim_cur);
  if (files.rlim_cur < kFew) {
    findings.push_back(
        warning("limits", text, "a model of many shards may not open: ulimit -n 1024"));
  } else {
    findings.push_back(fine("limits", text));
  }
}

void examine_devices(std::vector<Finding>& findings) {
  const auto devices = cuda_devices();
  if (!devices.ok()) {
    findings.push_back(fine("cuda", devices.error().message));
    return;
  }
  if (devices->empty()) findings.push_back(fine("cuda", "no device"));
  for (const DeviceFacts& device : *devices)
    findings.push_back(
        fine("cuda", fmt::format("{}, sm_{}{}, {} multiprocessors, {}", device.name,
                                 device.compute_major, device.compute_minor,
                                 device.num_multiprocessors, size_text(device.memory_bytes))));
}

class Doctor final : public Command {
 public:
  Doctor(CLI::App& parent, CLI::App*& app) {
    app = parent.add_subcommand("doctor", "What this machine offers, and what is in the way");
  }

  ExitCode run() override {
    std::vector<Finding> findings;
    findings.push_back(fine("switchyard", kVersion));
    for (const auto examine : {examine_cpu, examine_topology, examine_memory, examine_huge_pages,
                               examine_limits, examine_devices})
      examine(findings);
    print(findings);
    print_environment();
    return kOk;
  }

 private:
  static void print(const std::vector<Finding>& findings) {
    const Look look = stdout_look();
    for (const Finding& finding : findings) {
      const bool is_fine = finding.state == State::ok;
      std::printf(
          "%s  %s  %s\n",
          styled(is_fine ? "ok  " : "warn", is_fine ? Style::green : Style::yellow, look).c_str(),
          pad(finding.subject, 16, Align::left).c_str(), finding.text.c_str());
      if (!finding.advice.empty())
        std::printf("      %s  %s\n", pad("", 16, Align::left).c_str(), finding.advice.c_str());
    }
  }

  static void print_environment() {
    std::printf("\nenvironment variables\n");
    for (const EnvironmentVariable& variable : environment_variables()) {
      const auto value = environment(variable.name);
      std::printf("  %s  %s  %s\n", pad(variable.name, 26, Align::left).c_str(),
                  pad(value ? printable(*value) : "(unset)", 10, Align::left).c_str(),
                  std::string(variable.help).c_str());
    }
  }
};

}  // namespace

std::unique_ptr<Command> make_doctor(CLI::App& parent, CLI::App*& app) {
  return std::make_unique<Doctor>(parent, app);
}

}  // namespace switchyard::cli
