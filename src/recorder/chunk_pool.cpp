#include "src/recorder/chunk_pool.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <vector>

namespace marey::recorder {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int kMadvPopulateWrite = 23;  // Linux 5.14; older kernels answer EINVAL and pages are touched by hand
#else
constexpr int kMadvPopulateWrite = MADV_POPULATE_WRITE;
#endif

void touch(std::byte* chunk) noexcept {
  if (madvise(chunk, detail::kChunkBytes, kMadvPopulateWrite) == 0) return;
  for (std::size_t at = 0; at < detail::kChunkBytes; at += 4096) {
    *reinterpret_cast<volatile char*>(chunk + at) = 0;
  }
}

}  // namespace

ChunkPool::ChunkPool(std::size_t cap_bytes) : count_(cap_bytes / detail::kChunkBytes) {
  if (count_ == 0) count_ = 1;
  mapping_bytes_ = (count_ + 1) * detail::kChunkBytes;
  void* mapping =
      mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {  // no address space: every record is dropped and counted
    count_ = 0;
    return;
  }
  mapping_ = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  base_ = mapping_ + (detail::kChunkBytes - address % detail::kChunkBytes) % detail::kChunkBytes;
  next_ = std::make_unique<std::atomic<std::uint32_t>[]>(count_);
}

ChunkPool::~ChunkPool() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

detail::ChunkHeader* ChunkPool::at(std::uint32_t index) const noexcept {
  return reinterpret_cast<detail::ChunkHeader*>(base_ + std::size_t{index} * detail::kChunkBytes);
}

void ChunkPool::push(std::uint32_t index) noexcept {
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  std::uint64_t fresh_head = 0;
  do {
    next_[index].store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    fresh_head = ((head >> 32U) + 1) << 32U | (index + 1U);
    // Release: whoever pops this chunk sees all that its last user did with it.
  } while (!head_.compare_exchange_weak(head, fresh_head, std::memory_order_release, std::memory_order_relaxed));
  free_.fetch_add(1, std::memory_order_relaxed);
}

bool ChunkPool::pop(std::uint32_t* index) noexcept {
  // Acquire pairs with push(). The tag in the high half makes a head that came back differ from the one that was read.
  std::uint64_t head = head_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(head) != 0) {
    const std::uint32_t top = static_cast<std::uint32_t>(head) - 1;
    const std::uint64_t rest = ((head >> 32U) + 1) << 32U | next_[top].load(std::memory_order_relaxed);
    if (head_.compare_exchange_weak(head, rest, std::memory_order_acquire, std::memory_order_acquire)) {
      free_.fetch_sub(1, std::memory_order_relaxed);
      *index = top;
      return true;
    }
  }
  return false;
}

detail::ChunkHeader* ChunkPool::take() noexcept {
  std::uint32_t index = 0;
  if (!pop(&index)) {
    // A counter that only hands out numbers: no order needed.
    std::uint32_t fresh = fresh_.load(std::memory_order_relaxed);
    do {
      if (fresh >= count_) return nullptr;
    } while (!fresh_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed));
    index = fresh;
  }
  auto* chunk = new (at(index)) detail::ChunkHeader;
  auto* first = reinterpret_cast<detail::Slot*>(reinterpret_cast<std::byte*>(chunk) + sizeof(detail::ChunkHeader));
  chunk->committed.store(first, std::memory_order_relaxed);  // published with the chunk itself
  chunk->next.store(nullptr, std::memory_order_relaxed);
  return chunk;
}

void ChunkPool::give(detail::ChunkHeader* chunk) noexcept {
  push(static_cast<std::uint32_t>((reinterpret_cast<std::byte*>(chunk) - base_) / detail::kChunkBytes));
}

void ChunkPool::prefault(std::size_t free_chunks) noexcept {
  while (free_.load(std::memory_order_relaxed) < static_cast<std::int64_t>(free_chunks)) {
    std::uint32_t fresh = fresh_.load(std::memory_order_relaxed);
    if (fresh >= count_) return;
    if (!fresh_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed)) continue;
    touch(reinterpret_cast<std::byte*>(at(fresh)));
    push(fresh);
  }
}

void ChunkPool::trim(std::size_t keep_chunks) noexcept {
  // Chunks are taken out while their pages go, so that nobody can be handed one in between.
  std::vector<std::uint32_t> taken;
  std::uint32_t index = 0;
  while (pop(&index)) taken.push_back(index);
  for (std::size_t i = taken.size(); i-- > 0;) {
    if (i >= keep_chunks) madvise(at(taken[i]), detail::kChunkBytes, MADV_DONTNEED);
    push(taken[i]);
  }
}

std::size_t ChunkPool::free_chunks() const noexcept {
  const std::int64_t free = free_.load(std::memory_order_relaxed);
  const std::size_t unused = count_ - fresh_.load(std::memory_order_relaxed);
  return unused + static_cast<std::size_t>(free < 0 ? 0 : free);
}

}  // namespace marey::recorder
