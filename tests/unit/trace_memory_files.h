#pragma once

// A file system in memory whose calls can be made to fail.

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/file_output.h"

namespace marey::trace {

class MemoryFileSystem final : public base::FileSystem {
 public:
  std::map<std::string, std::vector<char>> files;
  std::string failing;        ///< "create", "append", "truncate", "sync", "close" or "rename": this call fails
  int calls_before = 0;       ///< how many of them work first
  std::vector<std::string> renames;  ///< targets that were tried

  Status create_folders(const std::string&) override { return Status::ok(); }
  Status check_writable(const std::string&) override { return Status::ok(); }
  Result<std::unique_ptr<base::FileOutput>> create(const std::string& path) override {
    if (fails("create")) return refusal("create", path);
    if (files.contains(path)) return Status::io("cannot create '" + path + "': it exists");
    files[path];
    return std::unique_ptr<base::FileOutput>(std::make_unique<File>(*this, path));
  }
  Status rename_exclusive(const std::string& from, const std::string& to) override {
    renames.push_back(to);
    if (fails("rename")) return refusal("rename to", to);
    if (files.contains(to)) return Status::io("cannot rename to '" + to + "': it exists");
    files[to] = std::move(files[from]);
    files.erase(from);
    return Status::ok();
  }
  Status remove(const std::string& path) override {
    files.erase(path);
    return Status::ok();
  }

 private:
  class File final : public base::FileOutput {
   public:
    File(MemoryFileSystem& owner, std::string path) : owner_(owner), path_(std::move(path)) {}
    Status append(std::span<const std::byte> bytes) override {
      std::vector<char>& to = owner_.files[path_];
      const auto* data = reinterpret_cast<const char*>(bytes.data());
      if (owner_.fails("append")) {
        // A full disk takes a part.
        to.insert(to.end(), data, data + bytes.size() / 2);
        return refusal("write", path_);
      }
      to.insert(to.end(), data, data + bytes.size());
      return Status::ok();
    }
    Status truncate(std::uint64_t size) override {
      if (owner_.fails("truncate")) return refusal("truncate", path_);
      owner_.files[path_].resize(size);
      return Status::ok();
    }
    Status sync() override { return owner_.fails("sync") ? refusal("sync", path_) : Status::ok(); }
    Status close() override { return owner_.fails("close") ? refusal("close", path_) : Status::ok(); }
    [[nodiscard]] std::uint64_t size() const override { return owner_.files[path_].size(); }

   private:
    MemoryFileSystem& owner_;
    std::string path_;
  };

  bool fails(const char* call) { return failing == call && calls_before-- <= 0; }
  static Status refusal(const char* what, const std::string& path) {
    return Status::io(std::string("cannot ") + what + " '" + path + "': No space left on device; free space there");
  }
};

}  // namespace marey::trace
