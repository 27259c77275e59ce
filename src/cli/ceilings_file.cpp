// SPDX-License-Identifier: Apache-2.0
#include "cli/ceilings_file.h"

#include <cmath>

#include "base/files.h"
#include "base/json.h"
#include "device/cpu_features.h"

namespace switchyard::cli {
namespace {

std::string ceilings_text(const cpu::Ceilings& ceilings, int threads) {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_object();
  json.field("read_gbps_one", ceilings.read_gbps_one);
  json.field("read_gbps_all", ceilings.read_gbps_all);
  json.field("amx_gflops", ceilings.amx_gflops).field("fma_gflops", ceilings.fma_gflops);
  json.field("threads", threads).field("cpu", cpu_features().model);
  json.field("isa", isa_level_name(cpu_features().usable)).end_object();
  return text + '\n';
}

Result<double> rate_of(const Json& json, std::string_view key, const std::string& path) {
  const Json* value = json.find(key);
  if (value == nullptr || !value->is_number() || !(value->as_double() >= 0))
    return fail(Code::bad_file,
                "{}: {} should be a number of at least 0; remove the file to measure "
                "again",
                path, key);
  return value->as_double();
}

/// A stamp of the file against this machine.
Status check_stamp(const Json& json, std::string_view key, const Json& here,
                   const std::string& path) {
  const Json* there = json.find(key);
  const std::string found = there != nullptr ? json_text(*there) : "missing";
  if (found == json_text(here)) return {};
  return fail(Code::bad_request,
              "{}: measured with {} {}, but here it is {}; remove the file to measure again", path,
              key, found, json_text(here));
}

Result<cpu::Ceilings> read_ceilings(const std::string& path, int threads) {
  SWITCHYARD_ASSIGN(const Json json, read_json_file(path));
  SWITCHYARD_TRY(check_stamp(json, "cpu", Json(cpu_features().model), path));
  SWITCHYARD_TRY(
      check_stamp(json, "isa", Json(std::string(isa_level_name(cpu_features().usable))), path));
  SWITCHYARD_TRY(check_stamp(json, "threads", Json(threads), path));
  cpu::Ceilings ceilings;
  SWITCHYARD_ASSIGN(ceilings.read_gbps_one, rate_of(json, "read_gbps_one", path));
  SWITCHYARD_ASSIGN(ceilings.read_gbps_all, rate_of(json, "read_gbps_all", path));
  SWITCHYARD_ASSIGN(ceilings.amx_gflops, rate_of(json, "amx_gflops", path));
  SWITCHYARD_ASSIGN(ceilings.fma_gflops, rate_of(json, "fma_gflops", path));
  return ceilings;
}

}  // namespace

Result<cpu::Ceilings> load_ceilings(const std::string& path, Pool& pool) {
  if (!path.empty() && file_exists(path)) return read_ceilings(path, pool.num_threads());
  SWITCHYARD_ASSIGN(const cpu::Ceilings ceilings, cpu::measure_ceilings(pool));
  if (!path.empty()) {
    SWITCHYARD_TRY(write_file_atomic(path, ceilings_text(ceilings, pool.num_threads())));
  }
  return ceilings;
}

}  // namespace switchyard::cli
