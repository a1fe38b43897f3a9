#include "src/base/file_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>

namespace marey::base {
namespace {

std::string_view remedy_of(int error) {
  switch (error) {
    case ENOSPC:
      return "free space there or set MAREY_OUT to another disk";
    case EDQUOT:
      return "the quota is used up; set MAREY_OUT to another disk";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a folder you may write to (out=, or MAREY_OUT)";
    case ENOENT:
      return "the folder was removed; create it again";
    case ENAMETOOLONG:
      return "choose a shorter role or folder name";
    case EMFILE:
    case ENFILE:
      return "too many open files; raise ulimit -n";
    default:
      return "check the disk";
  }
}

Status io_error(std::string_view what, const std::string& path, int error) {
  return Status::io(fmt::format("cannot {} '{}': {}; {}", what, path, std::strerror(error), remedy_of(error)));
}

class PosixFile final : public FileOutput {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (written < 0) {
        if (errno == EINTR) continue;
        return io_error("write", path_, errno);
      }
      size_ += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return Status::ok();
  }

  Status truncate(std::uint64_t size) override {
    while (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
      if (errno != EINTR) return io_error("truncate", path_, errno);
    }
    size_ = size;
    return Status::ok();
  }

  Status sync() override {
    while (::fdatasync(fd_) != 0) {
      if (errno == EINTR) continue;
      if (errno == EINVAL || errno == ENOTSUP) break;  // pipes and some network file systems have nothing to sync
      return io_error("sync", path_, errno);
    }
    return Status::ok();
  }

  Status close() override {
    if (fd_ < 0) return Status::ok();
    const int fd = fd_;
    fd_ = -1;
    // After EINTR Linux has closed the descriptor all the same; closing again could hit a stranger's.
    if (::close(fd) != 0 && errno != EINTR) return io_error("close", path_, errno);
    return Status::ok();
  }

  [[nodiscard]] std::uint64_t size() const override { return size_; }

 private:
  int fd_;
  std::string path_;
  std::uint64_t size_ = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  Status create_folders(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error && !std::filesystem::is_directory(path)) return io_error("create folder", path, error.value());
    return Status::ok();
  }

  Status check_writable(const std::string& folder) override {
    std::random_device random;
    const std::string probe = fmt::format("{}/.marey-probe-{}-{:08x}", folder, ::getpid(), random());
    const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
      return Status::invalid_argument(
          fmt::format("cannot write to folder '{}': {}; {}", folder, std::strerror(errno), remedy_of(errno)));
    }
    ::close(fd);
    ::unlink(probe.c_str());
    return Status::ok();
  }

  Result<std::unique_ptr<FileOutput>> create(const std::string& path) override {
    int fd = -1;
    do {
      fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return io_error("create", path, errno);
    return std::unique_ptr<FileOutput>(std::make_unique<PosixFile>(fd, path));
  }

  Status rename_exclusive(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return Status::ok();
    if (errno != EINVAL && errno != ENOSYS) return io_error("rename to", to, errno);
    // The file system knows no RENAME_NOREPLACE: link(2) refuses an existing name too.
    if (::link(from.c_str(), to.c_str()) != 0) return io_error("rename to", to, errno);
    ::unlink(from.c_str());
    return Status::ok();
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return io_error("remove", path, errno);
    return Status::ok();
  }
};

}  // namespace

FileSystem& real_file_system() {
  static PosixFileSystem instance;
  return instance;
}

}  // namespace marey::base
