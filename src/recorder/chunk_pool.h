#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "marey/detail/lane.h"

namespace marey::recorder {

/// All memory that lanes record into: chunks of kChunkBytes, aligned to their size, at most `cap_bytes` of them. take()
/// and give() are lock-free and allocate nothing; pages are touched ahead of use by prefault().
class ChunkPool {
 public:
  explicit ChunkPool(std::size_t cap_bytes);
  ~ChunkPool();
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;

  /// A chunk with an initialised header, or null when the cap is reached. Any thread.
  detail::ChunkHeader* take() noexcept;
  /// Returns a chunk that nobody refers to any more. Any thread.
  void give(detail::ChunkHeader* chunk) noexcept;
  /// Touches fresh pages until at least `free_chunks` are ready. Drain or arming thread.
  void prefault(std::size_t free_chunks) noexcept;
  /// Hands pages of free chunks back to the system, keeping `keep_chunks` warm. Drain only.
  void trim(std::size_t keep_chunks) noexcept;

  [[nodiscard]] std::size_t free_chunks() const noexcept;
  [[nodiscard]] std::size_t cap_bytes() const noexcept { return count_ * detail::kChunkBytes; }

 private:
  [[nodiscard]] detail::ChunkHeader* at(std::uint32_t index) const noexcept;
  void push(std::uint32_t index) noexcept;
  bool pop(std::uint32_t* index) noexcept;

  std::size_t count_ = 0;
  std::byte* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::unique_ptr<std::atomic<std::uint32_t>[]> next_;
  /// Treiber stack of free chunks: index + 1 in the low half (0: empty), a tag against ABA in the high half.
  std::atomic<std::uint64_t> head_{0};
  std::atomic<std::uint32_t> fresh_{0};  ///< chunks never used yet begin here
  std::atomic<std::int64_t> free_{0};    ///< a hint for prefault()
};

}  // namespace marey::recorder
