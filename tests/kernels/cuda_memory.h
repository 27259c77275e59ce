// SPDX-License-Identifier: Apache-2.0
// Device memory for tests: poisoned when made, with guard bytes on both sides that must survive.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace switchyard::testing {

/// compute capability * 10 of the first device; 0: there is none, and `why` says what was found.
int cuda_sm(std::string& why);
/// The last error of the device, after all work is done; empty: none.
std::string cuda_error();

/// Captures `work` as a graph and replays it `times` times; false: it could not be captured.
bool replay_as_graph(const std::function<void(void* stream)>& work, int times);

class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes);
  DeviceBytes(DeviceBytes&& other) noexcept;
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  DeviceBytes& operator=(DeviceBytes&&) = delete;
  ~DeviceBytes();

  char* data() const noexcept;
  int64_t size() const noexcept { return bytes_; }
  /// Bytes of 0xff: NaN as bf16 and as f32, -1 as an integer.
  void poison();
  void zero();
  void upload(const void* from, int64_t bytes);
  void download(void* to, int64_t bytes) const;
  bool guards_are_intact() const;

 private:
  int64_t bytes_ = 0;
  char* base_ = nullptr;
};

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count)
      : count_(count), bytes_(count * static_cast<int64_t>(sizeof(T))) {}
  explicit DeviceArray(const std::vector<T>& values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    bytes_.upload(values.data(), bytes_.size());
  }

  T* data() const noexcept { return reinterpret_cast<T*>(bytes_.data()); }
  int64_t size() const noexcept { return count_; }
  DeviceBytes& bytes() noexcept { return bytes_; }
  const DeviceBytes& bytes() const noexcept { return bytes_; }
  void set(const std::vector<T>& values) {
    bytes_.upload(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    bytes_.download(values.data(), bytes_.size());
    return values;
  }

 private:
  int64_t count_;
  DeviceBytes bytes_;
};

}  // namespace switchyard::testing
