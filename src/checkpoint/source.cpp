// SPDX-License-Identifier: Apache-2.0
// Opening a checkpoint: which files, inside which folder, and do they agree with the index.
//
// Names of files come from the index, which a stranger wrote: they must be plain names, and what they lead to must lie
// in the model's own folder.
#include "checkpoint/source.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace switchyard::checkpoint {
namespace {
namespace fs = std::filesystem;

// A shard must be a file of the model's own folder. A link that leads outside is refused, but for
// the layout of the Hugging Face cache, whose snapshots/HASH/ folders hold links to blobs/ beside
// snapshots/.
Result<std::string> inside(const std::string& folder, const std::string& name) {
  std::error_code error;
  const fs::path path = fs::path(folder) / name;
  const fs::path real = fs::canonical(path, error);
  if (error) {
    return fail(Code::bad_file, "{}: shard is missing: {}; copy the whole model folder",
                path.string(), error.message());
  }
  const fs::path home = fs::canonical(folder, error);
  const bool cache = home.parent_path().filename() == "snapshots" &&
                     real.parent_path() == home.parent_path().parent_path() / "blobs";
  if (error || (real.parent_path() != home && !cache)) {
    return fail(Code::bad_file,
                "{}: leads outside the model's folder (to {}); copy the file into the folder",
                path.string(), real.string());
  }
  return path.string();
}

Status add_shard(const std::string& path, std::vector<std::shared_ptr<MappedFile>>& files,
                 std::vector<TensorEntry>& tensors) {
  SWITCHYARD_ASSIGN(MappedFile file, MappedFile::open(path));
  files.push_back(std::make_shared<MappedFile>(std::move(file)));
  SWITCHYARD_ASSIGN(std::vector<TensorEntry> entries,
                    parse_safetensors(files.back()->bytes(), path));
  for (TensorEntry& entry : entries) {
    entry.file = static_cast<int>(files.size()) - 1;
    tensors.push_back(std::move(entry));
  }
  return {};
}

Result<Source> open_file(const std::string& path) {
  std::vector<std::shared_ptr<MappedFile>> files;
  std::vector<TensorEntry> tensors;
  SWITCHYARD_TRY(add_shard(path, files, tensors));
  return Source(std::move(files), std::move(tensors), "safetensors");
}

// Every tensor of the index is in its shard and in no other.
Status check_against_index(const Source& source, const ShardIndex& index) {
  std::string_view previous;
  for (const TensorEntry& entry : source.tensors()) {
    const std::string shard = fs::path(source.file_of(entry)).filename().string();
    if (entry.name == previous) {
      return fail(Code::bad_file, "tensor '{}' is in two shards, one of them {}", entry.name,
                  shard);
    }
    previous = entry.name;
    const auto at = index.shard_of.find(entry.name);
    if (at == index.shard_of.end()) {
      return fail(Code::bad_file, "tensor '{}' of {} is not in the index", entry.name, shard);
    }
    if (at->second != shard) {
      return fail(Code::bad_file, "tensor '{}': the index says {}, found in {}", entry.name,
                  at->second, shard);
    }
  }
  for (const auto& [name, shard] : index.shard_of) {
    if (source.find(name) == nullptr) {
      return fail(Code::bad_file, "tensor '{}' is not in its shard {}", name, shard);
    }
  }
  if (index.total_bytes && *index.total_bytes != source.total_bytes()) {
    return fail(Code::bad_file, "metadata.total_size is {}, the tensors take {} bytes",
                *index.total_bytes, source.total_bytes());
  }
  return {};
}

Result<Source> open_index(const std::string& folder, const std::string& path) {
  SWITCHYARD_ASSIGN(const ShardIndex index, read_index(path));
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : index.shard_of) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  std::vector<std::shared_ptr<MappedFile>> files;
  std::vector<TensorEntry> tensors;
  for (const std::string& shard : shards) {
    SWITCHYARD_ASSIGN(const std::string shard_path, inside(folder, shard));
    SWITCHYARD_TRY(add_shard(shard_path, files, tensors));
  }
  Source source(std::move(files), std::move(tensors), "safetensors");
  Status agrees = check_against_index(source, index);
  if (agrees.ok()) return source;
  Error error = with_context(std::move(agrees).error(), path);
  error.message += "; index and shards are not of one model: fetch the whole folder again";
  return error;
}

Result<Source> open_single(const std::string& folder, const std::string& name) {
  SWITCHYARD_ASSIGN(const std::string path, inside(folder, name));
  return open_file(path);
}

Result<Source> open_folder(const std::string& folder) {
  const std::string index = folder + "/model.safetensors.index.json";
  if (file_exists(index)) return open_index(folder, index);
  // A fixed name is no stranger's word: people link the weights of one model into several folders.
  if (file_exists(folder + "/model.safetensors")) return open_file(folder + "/model.safetensors");
  SWITCHYARD_ASSIGN(const std::vector<std::string> names, list_directory(folder));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.ends_with(".safetensors")) found.push_back(name);
  }
  if (found.size() == 1) return open_single(folder, found[0]);
  return fail(Code::bad_file,
              "{}: expected model.safetensors.index.json, model.safetensors or one *.safetensors; "
              "found {} such files",
              folder, found.size());
}

}  // namespace

Source::Source(std::vector<std::shared_ptr<MappedFile>> files, std::vector<TensorEntry> tensors,
               std::string format)
    : files_(std::move(files)), tensors_(std::move(tensors)), format_(std::move(format)) {
  const auto by_name = [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; };
  if (!std::is_sorted(tensors_.begin(), tensors_.end(), by_name)) {  // one shard is
    std::stable_sort(tensors_.begin(), tensors_.end(), by_name);
  }
}

const TensorEntry* Source::find(std::string_view name) const noexcept {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorEntry& entry, std::string_view key) { return entry.name < key; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

std::vector<std::string> Source::files() const {
  std::vector<std::string> paths;
  for (const auto& file : files_) paths.push_back(file->path());
  return paths;
}

const std::string& Source::file_of(const TensorEntry& entry) const noexcept {
  return files_[entry.file]->path();
}

uint64_t Source::total_bytes() const noexcept {
  uint64_t total = 0;
  for (const TensorEntry& entry : tensors_) total += entry.bytes();
  return total;
}

Storage Source::share(const TensorEntry& entry) const {
  return Storage::share(files_[entry.file], {entry.data, entry.bytes()});
}

void Source::drop(const TensorEntry& entry) const noexcept {
  files_[entry.file]->drop({entry.data, entry.bytes()});
}

Result<Source> open_checkpoint(const std::string& path) {
  if (is_directory(path)) return open_folder(path);
  return open_file(path);
}

}  // namespace switchyard::checkpoint
