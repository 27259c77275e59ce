// SPDX-License-Identifier: Apache-2.0
// Maps, limited reads and writes that appear at once.
#include "base/files.h"

#include <csignal>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/temp_folder.h"
#include "base/text_checks.h"

namespace switchyard {
namespace {

using Names = std::vector<std::string>;

TEST(MappedFile, ShowsTheBytes) {
  const TempFolder folder;
  const std::string path = folder.write("a", "hello");
  Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->text(), "hello");
  EXPECT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(file->path(), path);
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  const TempFolder folder;
  Result<MappedFile> file = MappedFile::open(folder.write("a", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, MovesItsMap) {
  const TempFolder folder;
  MappedFile a = *MappedFile::open(folder.write("a", "first"));
  MappedFile b = *MappedFile::open(folder.write("b", "second"));
  b = std::move(a);
  EXPECT_EQ(b.text(), "first");
  const MappedFile c = std::move(b);
  EXPECT_EQ(c.text(), "first");
}

TEST(MappedFile, DroppedPagesReadTheSameAgain) {
  const TempFolder folder;
  const std::string content(100'000, 'x');
  const MappedFile file = *MappedFile::open(folder.write("a", content));
  file.drop(file.bytes());
  file.drop(file.bytes().subspan(5000, 3));
  file.drop({});
  EXPECT_EQ(file.text(), content);
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  const auto message = [](const std::string& path) {
    const Result<MappedFile> file = MappedFile::open(path);
    EXPECT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, Code::bad_file);
    return file.error().message;
  };
  EXPECT_TRUE(has(message(folder.path("absent")), "No such file"));
  EXPECT_TRUE(has(message(folder.path()), "found a directory"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(has(message(folder.path("pipe")), "pipe"));  // and does not hang
}

TEST(ReadTextFile, KeepsItsLimit) {
  const TempFolder folder;
  const std::string path = folder.write("a", "12345");
  EXPECT_EQ(*read_text_file(path, 5), "12345");
  const Result<std::string> refused = read_text_file(path, 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(has(refused.error().message, "5 bytes are more than the 4 allowed"));
}

TEST(ReadTextFile, ReadsFilesThatDoNotTellTheirSize) {
  const Result<std::string> status = read_text_file("/proc/self/status", 1 << 20);
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(has(*status, "Name:"));
  EXPECT_TRUE(has(read_text_file("/proc/self/status", 10).error().message, "grew over"));
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(FileWriter, GivesTheNameWhenItIsCommitted) {
  const TempFolder folder;
  const std::string path = folder.write("a", "old"), piece(700'000, 'x');
  auto writer = FileWriter::create(path);
  ASSERT_TRUE(writer.ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(writer->append(bytes_of(piece)).ok());
  FileWriter moved = *std::move(writer);
  EXPECT_EQ(*read_text_file(path, 100), "old");
  ASSERT_TRUE(moved.append(bytes_of("end")).ok());
  ASSERT_TRUE(moved.commit().ok());
  EXPECT_EQ(*read_text_file(path, 1 << 24), piece + piece + piece + "end");
  EXPECT_EQ(list_directory(folder.path())->size(), 1u);
  EXPECT_FALSE(moved.append(bytes_of("more")).ok()) << "it is closed";
}

TEST(FileWriter, LeavesNothingWithoutACommit) {
  const TempFolder folder;
  const std::string path = folder.write("a", "old");
  {
    auto writer = FileWriter::create(path);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append(bytes_of("new")).ok());
    auto other = FileWriter::create(path);
    ASSERT_TRUE(other.ok());
    *other = *std::move(writer);  // the other's file goes, too
  }
  EXPECT_EQ(*read_text_file(path, 100), "old");
  EXPECT_EQ(list_directory(folder.path())->size(), 1u);
}

TEST(FileWriter, TellsAboutAFullDisk) {
  if (!file_exists("/proc/self/status")) GTEST_SKIP();
  const TempFolder folder;
  EXPECT_EQ(FileWriter::create(folder.path("no/a")).error().code, Code::bad_request);
  // A limit on the size of files is met like a full disk.
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { 4096, before.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto writer = FileWriter::create(folder.path("a"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->append(bytes_of(std::string(10'000, 'x'))).ok()) << "buffered";
  const Status committed = writer->commit();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(committed.ok());
  EXPECT_EQ(committed.error().code, Code::out_of_memory);
  EXPECT_FALSE(file_exists(folder.path("a")));
}

TEST(WriteFileAtomic, ReplacesAndLeavesNothingBeside) {
  const TempFolder folder;
  const std::string path = folder.path("a");
  ASSERT_TRUE(write_file_atomic(path, "old").ok());
  ASSERT_TRUE(write_file_atomic(path, "new").ok());
  EXPECT_EQ(*read_text_file(path, 100), "new");
  EXPECT_EQ(*list_directory(folder.path()), (Names{"a"}));
}

TEST(WriteFileAtomic, FailureKeepsTheOldAndCleansUp) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("taken"));
  const Status over_folder = write_file_atomic(folder.path("taken"), "x");
  ASSERT_FALSE(over_folder.ok());
  EXPECT_TRUE(has(over_folder.error().message, "cannot rename"));
  EXPECT_EQ(*list_directory(folder.path()), (Names{"taken"}));
  const Status nowhere = write_file_atomic(folder.path("no/such/folder"), "x");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, Code::bad_request);
}

TEST(WriteFileAtomic, AReaderNeverSeesHalf) {
  const TempFolder folder;
  const std::string path = folder.path("a");
  const std::string first(50'000, '1'), second(50'000, '2');
  ASSERT_TRUE(write_file_atomic(path, first).ok());
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(write_file_atomic(path, i % 2 == 0 ? second : first).ok());
    }
  });
  for (int i = 0; i < 50; ++i) {
    const Result<std::string> text = read_text_file(path, 1 << 20);
    ASSERT_TRUE(text.ok());
    EXPECT_TRUE(*text == first || *text == second);
  }
  writer.join();
}

TEST(Directory, ListsSortedAndTellsKinds) {
  const TempFolder folder;
  folder.write("b", "");
  folder.write("a", "");
  folder.write("sub/c", "");
  EXPECT_EQ(*list_directory(folder.path()), (Names{"a", "b", "sub"}));
  EXPECT_TRUE(file_exists(folder.path("a")));
  EXPECT_FALSE(file_exists(folder.path("sub")));
  EXPECT_FALSE(file_exists(folder.path("z")));
  EXPECT_TRUE(is_directory(folder.path("sub")));
  EXPECT_FALSE(is_directory(folder.path("a")));
  EXPECT_EQ(list_directory(folder.path("z")).error().code, Code::bad_file);
}

}  // namespace
}  // namespace switchyard
