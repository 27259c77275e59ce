// SPDX-License-Identifier: Apache-2.0
// Files by plain POSIX calls: each failure keeps its errno text, so that a person knows what to repair.
#include "base/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace switchyard {
namespace {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }
  bool ok() const noexcept { return fd_ >= 0; }
  /// Closes now; false when the system reports a late write error.
  bool close() noexcept { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

std::string errno_text(int error) { return std::strerror(error); }

/// Opens a regular file for reading and tells its size.
Result<int> open_regular(const std::string& path, uint64_t* size) {
  // Non-blocking, so that a named pipe cannot hang us before we have seen that it is one.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return fail(Code::bad_file, "{}: cannot open: {}; check the path and its permissions", path,
                errno_text(errno));
  }
  struct stat facts {};
  if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    const bool folder = S_ISDIR(facts.st_mode);
    ::close(fd);
    return fail(Code::bad_file, "{}: expected a regular file, found {}", path,
                folder ? "a directory" : "something else (a device, pipe or socket)");
  }
  *size = static_cast<uint64_t>(facts.st_size);
  return fd;
}

Code write_code(int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EFBIG;
  return full ? Code::out_of_memory : Code::bad_request;
}

Status write_all(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return fail(write_code(errno), "{}: cannot write: {}; {} bytes were left", path,
                  errno_text(errno), content.size());
    }
    content.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

/// A name next to `path` that no other writer uses.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
}

/// The content must be on disk before the name is, or a power cut leaves an empty file of that name.
Status finish_file(Descriptor& file, const std::string& path) {
  if (::fsync(file.get()) == 0 && file.close()) return {};
  return fail(write_code(errno), "{}: cannot finish writing: {}", path, errno_text(errno));
}

Status rename_to(const std::string& path, const std::string& temporary) {
  if (::rename(temporary.c_str(), path.c_str()) == 0) return {};
  return fail(write_code(errno), "{}: cannot rename {} to it: {}", path, temporary,
              errno_text(errno));
}

Status write_and_close(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.ok()) {
    return fail(write_code(errno), "{}: cannot create: {}; check the folder and its permissions",
                path, errno_text(errno));
  }
  SWITCHYARD_TRY(write_all(file.get(), path, content));
  return finish_file(file, path);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  uint64_t size = 0;
  SWITCHYARD_ASSIGN(const int fd, open_regular(path, &size));
  const Descriptor descriptor(fd);
  MappedFile file;
  file.path_ = path;
  if (size == 0) return file;
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (at == MAP_FAILED) {
    const Code code = errno == ENOMEM ? Code::out_of_memory : Code::bad_file;
    return fail(code, "{}: cannot map {} bytes: {}; check the limits on address space (ulimit -v)",
                path, size, errno_text(errno));
  }
  file.data_ = static_cast<const std::byte*>(at);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  // The old map travels to `other`, whose destructor gives it back.
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop(std::span<const std::byte> range) const noexcept {
  if (range.empty()) return;
  // Whole pages inside the range alone: the neighbours on a shared page may still be in use.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = (first + range.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes) {
  uint64_t size = 0;
  SWITCHYARD_ASSIGN(const int fd, open_regular(path, &size));
  const Descriptor file(fd);
  if (size > max_bytes) {
    return fail(Code::bad_file, "{}: {} bytes are more than the {} allowed here", path, size,
                max_bytes);
  }
  // Files of /proc say size 0; so the size is a hint, and the limit is kept while reading.
  std::string text;
  size_t used = 0;
  text.resize(std::max<size_t>(size + 1, 4096));
  while (true) {
    const ssize_t n = ::read(file.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(Code::bad_file, "{}: cannot read: {}", path, errno_text(errno));
    if (n == 0) break;
    used += static_cast<size_t>(n);
    if (used > max_bytes) {
      return fail(Code::bad_file, "{}: grew over the {} bytes allowed here", path, max_bytes);
    }
    if (used == text.size()) text.resize(text.size() * 2);
  }
  text.resize(used);
  return text;
}

Status write_file_atomic(const std::string& path, std::string_view content) {
  const std::string temporary = temporary_name(path);
  Status written = write_and_close(temporary, content);
  if (written.ok()) written = rename_to(path, temporary);
  if (!written.ok()) ::unlink(temporary.c_str());
  return written;
}

Result<FileWriter> FileWriter::create(const std::string& path) {
  FileWriter writer;
  const std::string temporary = temporary_name(path);
  writer.fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (writer.fd_ < 0) {
    return fail(write_code(errno), "{}: cannot create: {}; check the folder and its permissions",
                path, errno_text(errno));
  }
  writer.path_ = path;
  writer.temporary_ = temporary;
  return writer;
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      buffer_(std::move(other.buffer_)),
      fd_(std::exchange(other.fd_, -1)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  // The old file travels to `other`, whose destructor removes it.
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(buffer_, other.buffer_);
  std::swap(fd_, other.fd_);
  return *this;
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status FileWriter::flush() {
  if (fd_ < 0) return fail(Code::bad_request, "{}: is not open for writing", path_);
  Status written = write_all(fd_, path_, buffer_);
  buffer_.clear();
  if (!written.ok()) ::close(std::exchange(fd_, -1));
  return written;
}

Status FileWriter::append(std::span<const std::byte> bytes) {
  constexpr size_t kBufferBytes = 1 << 20;
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return buffer_.size() >= kBufferBytes || fd_ < 0 ? flush() : Status();
}

Status FileWriter::commit() {
  SWITCHYARD_TRY(flush());
  Descriptor file(std::exchange(fd_, -1));
  SWITCHYARD_TRY(finish_file(file, path_));
  SWITCHYARD_TRY(rename_to(path_, temporary_));
  temporary_.clear();
  return {};
}

bool file_exists(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) {
    return fail(Code::bad_file, "{}: cannot list: {}; check the path and its permissions", path,
                errno_text(errno));
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace switchyard
