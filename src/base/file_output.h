#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/base/status.h"

namespace marey::base {

/// An append-only file under construction. One thread at a time. Every call reports the operating system's refusal with
/// the path and a remedy; after a failure the file holds a prefix of what was written.
class FileOutput {
 public:
  virtual ~FileOutput() = default;
  /// Appends all bytes or fails; short writes and EINTR are retried.
  virtual Status append(std::span<const std::byte> bytes) = 0;
  /// Cuts the file back to `size` bytes (size <= size()), so that an uncompressed tail can be replaced by its batch.
  virtual Status truncate(std::uint64_t size) = 0;
  /// Hands the bytes to the disk (fdatasync).
  virtual Status sync() = 0;
  /// Closes; a close that reports an error (quota, network file systems) is an error here too.
  virtual Status close() = 0;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
};

/// The operating system's files as an interface, so that tests can make any call fail.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// Creates the folder and its parents.
  virtual Status create_folders(const std::string& path) = 0;
  /// Fails with kInvalidArgument when a file cannot be created in the folder (probes with a temporary file).
  virtual Status check_writable(const std::string& folder) = 0;
  /// Creates a file that must not exist (O_EXCL).
  virtual Result<std::unique_ptr<FileOutput>> create(const std::string& path) = 0;
  /// Renames without ever replacing an existing file (RENAME_NOREPLACE, or link+unlink where that is unsupported).
  virtual Status rename_exclusive(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
};

/// The process's real file system.
FileSystem& real_file_system();

}  // namespace marey::base
