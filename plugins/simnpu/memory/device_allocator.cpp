#include "plugins/simnpu/memory/device_allocator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <c10/util/Exception.h>

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/memory/block.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

constexpr size_t kUnit = 512;                 // what a request is rounded up to
constexpr size_t kSmall = size_t{1} << 20;    // requests up to this share segments
constexpr size_t kSegment = size_t{2} << 20;  // size of such a segment, and the unit of larger ones
constexpr size_t kLargest = 20 * kSegment;    // a larger block is not cut for a request of less than half of it

double mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

thread_local const std::string* current_operator = nullptr;

DeviceAllocator& DeviceAllocator::get() {
  static auto* allocator = new DeviceAllocator;
  return *allocator;
}

DeviceAllocator::DeviceAllocator() {
  for (int i = 0; i < settings().device_count; ++i) {
    const Arena::Range range = Arena::get().device(i);
    pools_.push_back(std::make_unique<Pool>());
    pools_.back()->device = static_cast<c10::DeviceIndex>(i);
    pools_.back()->unused[range.begin] = range.end;
  }
}

bool DeviceAllocator::Smaller::operator()(const Block* a, const Block* b) const {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

DeviceAllocator::Pool& DeviceAllocator::pool(c10::DeviceIndex index) {
  const c10::DeviceIndex chosen = index < 0 ? Runtime::get().current_device() : index;
  TORCH_CHECK(static_cast<size_t>(chosen) < pools_.size(), "npu: invalid device index ", static_cast<int>(chosen));
  return *pools_[static_cast<size_t>(chosen)];
}

// --- allocation

c10::DataPtr DeviceAllocator::allocate(size_t requested) {
  Runtime& runtime = Runtime::get();
  const c10::DeviceIndex index = runtime.current_device();
  const c10::Device device(kDevice, index);
  if (requested == 0) return {nullptr, nullptr, &free_block, device};
  const c10::StreamId stream = runtime.current_stream(index).id();
  const size_t bytes = round_up(requested, kUnit);
  Block* block = nullptr;
  {
    const std::lock_guard lock(runtime.mutex());
    Pool& own = pool(index);
    collect_finished(own);
    block = take_free(own, stream, bytes);
    if (!block) block = take_fresh(own, stream, bytes);
    if (block) hand_out(own, block, requested);
  }
  if (!block) {
    // As real allocators do: give cached segments back, which waits for the device, and try once more.
    runtime.drain(index);
    const std::lock_guard lock(runtime.mutex());
    Pool& own = pool(index);
    ++own.stats.num_alloc_retries;
    collect_finished(own);
    release_cached(own);
    block = take_free(own, stream, bytes);
    if (!block) block = take_fresh(own, stream, bytes);
    if (!block) refuse(own, requested);
    hand_out(own, block, requested);
  }
  return {reinterpret_cast<void*>(block->address), block, &free_block, device};
}

DeviceAllocator::Block* DeviceAllocator::take_free(Pool& pool, c10::StreamId stream, size_t bytes) {
  Block key;
  key.bytes = bytes;
  auto& free = pool.free[stream];
  const auto found = free.lower_bound(&key);  // the smallest that fits
  if (found == free.end() || ((*found)->bytes > kLargest && (*found)->bytes > 2 * bytes)) return nullptr;
  Block* block = *found;
  free.erase(found);
  split(pool, block, bytes);
  return block;
}

DeviceAllocator::Block* DeviceAllocator::take_fresh(Pool& pool, c10::StreamId stream, size_t bytes) {
  const size_t segment = bytes <= kSmall ? kSegment : round_up(bytes, kSegment);
  for (const size_t size : {segment, round_up(bytes, kPage)}) {  // near the limit a smaller segment may still fit
    for (auto range = pool.unused.begin(); range != pool.unused.end(); ++range) {
      if (range->second - range->first < size) continue;
      auto block = std::make_unique<Block>();
      block->address = range->first;
      block->bytes = size;
      block->stream = stream;
      block->pool = &pool;
      const uintptr_t rest = range->first + size, end = range->second;
      pool.unused.erase(range);
      if (rest < end) pool.unused[rest] = end;
      Block* made = pool.blocks.emplace(block->address, std::move(block)).first->second.get();
      made->segment_begin = made->segment_end = true;
      pool.stats.reserved_bytes[0].increase(size);
      pool.stats.segment[0].increase(1);
      ++pool.stats.num_device_alloc;
      split(pool, made, bytes);
      return made;
    }
  }
  return nullptr;
}

// What is left over stays free on the same stream.
void DeviceAllocator::split(Pool& pool, Block* block, size_t bytes) {
  if (block->bytes - bytes < kUnit) return;
  auto rest = std::make_unique<Block>();
  rest->address = block->address + bytes;
  rest->bytes = block->bytes - bytes;
  rest->stream = block->stream;
  rest->pool = &pool;
  rest->segment_end = std::exchange(block->segment_end, false);
  rest->pending = block->pending;
  rest->history = block->history.within(rest->address, rest->address + rest->bytes);
  block->bytes = bytes;
  Block* made = pool.blocks.emplace(rest->address, std::move(rest)).first->second.get();
  pool.free[made->stream].insert(made);
}

void DeviceAllocator::hand_out(Pool& pool, Block* block, size_t requested) {
  block->allocated = true;
  block->requested = requested;
  block->serial = ++serial_;
  block->made_by = current_operator;
  const std::vector<RecordingPtr> ready = std::exchange(block->pending, {});
  pool.stats.allocation[0].increase(1);
  pool.stats.allocated_bytes[0].increase(block->bytes);
  pool.stats.requested_bytes[0].increase(requested);
  pool.stats.active[0].increase(1);
  pool.stats.active_bytes[0].increase(block->bytes);
  static const std::string* const name = intern("the allocator's reuse of the block");
  const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(kDevice, pool.device), block->stream);
  void* memory = Arena::get().for_worker(reinterpret_cast<void*>(block->address));
  const bool poison = on(Switch::poison);
  try {
    Runtime::get().launch_locked(stream,
                                 {name,
                                  {{Region::bytes(block->address, block->bytes), true}},
                                  [memory, bytes = block->bytes, poison] {
                                    if (poison) std::memset(memory, 0xFF, bytes);  // NaN in every float format
                                  }},
                                 ready);
    // What `ready` put an end to would still look open to streams that know this launch and not those recordings.
    block->history.forget_all_but_latest();
  } catch (...) {
    // The hazard is told once: nobody waits for that reader any more.
    block->history = {};
    put_back(pool, block);
    throw;
  }
}

void DeviceAllocator::refuse(Pool& pool, size_t bytes) {
  ++pool.stats.num_ooms;
  const int device = +pool.device;
  const auto reserved = static_cast<size_t>(pool.stats.reserved_bytes[0].current);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "NPU out of memory. Tried to allocate ", mib(bytes), " MiB (NPU ", device,
                   "; ", mib(settings().memory_bytes), " MiB total capacity; ",
                   mib(static_cast<size_t>(pool.stats.allocated_bytes[0].current)), " MiB already allocated; ",
                   mib(settings().memory_bytes - reserved), " MiB free; ", mib(reserved), " MiB reserved in total)");
}

// --- freeing

void DeviceAllocator::free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  if (!block) return;
  Runtime& runtime = Runtime::get();
  DeviceAllocator& self = get();
  const std::lock_guard lock(runtime.mutex());
  for (const c10::StreamId user : block->users) {
    const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(kDevice, block->pool->device), user);
    block->pending.push_back(runtime.record_locked(stream));
  }
  block->users.clear();
  if (block->pending.empty()) {
    self.put_back(*block->pool, block);
  } else {
    block->pool->waiting.push_back(block);
    block->pool->stats.allocation[0].decrease(1);
    block->pool->stats.allocated_bytes[0].decrease(block->bytes);
    block->pool->stats.requested_bytes[0].decrease(block->requested);
    block->requested = 0;
  }
}

void DeviceAllocator::put_back(Pool& pool, Block* block) {
  if (block->requested > 0) {
    pool.stats.allocation[0].decrease(1);
    pool.stats.allocated_bytes[0].decrease(block->bytes);
    pool.stats.requested_bytes[0].decrease(block->requested);
    block->requested = 0;
  }
  pool.stats.active[0].decrease(1);
  pool.stats.active_bytes[0].decrease(block->bytes);
  block->allocated = false;
  Runtime::get().forget_known_locked(block->pending);
  // Neighbours of the same segment, stream and state become one block again.
  const auto join = [&](Block* left, Block* right) {
    pool.free[right->stream].erase(right);
    left->bytes += right->bytes;
    left->segment_end = right->segment_end;
    left->history.take(right->history);
    left->pending.insert(left->pending.end(), right->pending.begin(), right->pending.end());
    pool.blocks.erase(right->address);
  };
  auto at = pool.blocks.find(block->address);
  if (!block->segment_end) {
    Block* right = std::next(at)->second.get();
    if (pool.free[block->stream].count(right)) join(block, right);
  }
  if (!block->segment_begin) {
    Block* left = std::prev(at)->second.get();
    if (pool.free[block->stream].erase(left)) {
      join(left, block);
      block = left;
    }
  }
  pool.free[block->stream].insert(block);
}

// Blocks whose recorded streams are done become free. Their recordings stay with them: only the next owner of the
// memory comes after that work, not everything else on its stream.
void DeviceAllocator::collect_finished(Pool& pool) {
  auto& waiting = pool.waiting;
  for (size_t i = 0; i < waiting.size();) {
    Block* block = waiting[i];
    const bool done =
        std::all_of(block->pending.begin(), block->pending.end(), [](const auto& r) { return r->done(); });
    if (!done) {
      ++i;
      continue;
    }
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
    put_back(pool, block);
  }
}

// Whole segments only, and only when the device is idle.
void DeviceAllocator::release_cached(Pool& pool) {
  for (auto& [stream, free] : pool.free) {
    for (auto it = free.begin(); it != free.end();) {
      Block* block = *it;
      if (!block->segment_begin || !block->segment_end) {
        ++it;
        continue;
      }
      it = free.erase(it);
      Arena::get().release(block->address, block->address + block->bytes);
      pool.stats.reserved_bytes[0].decrease(block->bytes);
      pool.stats.segment[0].decrease(1);
      ++pool.stats.num_device_free;
      pool.give_up(block->address, block->address + block->bytes);
      pool.blocks.erase(block->address);
    }
  }
}

void DeviceAllocator::emptyCache(c10::MempoolId_t) {
  for (const auto& own : pools_) {
    Runtime::get().drain(own->device);
    const std::lock_guard lock(Runtime::get().mutex());
    collect_finished(*own);
    release_cached(*own);
  }
}

}  // namespace pacer::simnpu
