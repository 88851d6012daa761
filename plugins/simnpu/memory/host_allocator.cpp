#include "plugins/simnpu/memory/host_allocator.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>
#include <utility>

#include <c10/util/Exception.h>

#include "plugins/simnpu/memory/arena.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {

HostAllocator& HostAllocator::get() {
  static auto* allocator = new HostAllocator;
  return *allocator;
}

HostAllocator::HostAllocator() : next_(Arena::get().pinned().begin), end_(Arena::get().pinned().end) {}

c10::DataPtr HostAllocator::allocate(size_t requested) {
  if (requested == 0) return {nullptr, nullptr, &free_block, c10::Device(c10::kCPU)};
  const size_t bytes = round_up(requested, kPage);  // rights are given per page
  const std::lock_guard lock(Runtime::get().mutex());
  for (size_t i = 0; i < waiting_.size();) {
    Block* block = waiting_[i];
    if (std::all_of(block->pending.begin(), block->pending.end(), [](const auto& r) { return r->done(); })) {
      free_.emplace(block->bytes, block);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  Block* block = nullptr;
  const auto found = free_.lower_bound(bytes);
  if (found != free_.end() && found->first <= 2 * bytes) {
    block = found->second;
    free_.erase(found);
  } else {
    TORCH_CHECK_WITH(OutOfMemoryError, end_ - next_ >= bytes, "NPU out of pinned host memory. Tried to allocate ",
                     requested, " bytes of ", settings().pinned_bytes, " (SIMNPU_PINNED_MB)");
    auto made = std::make_unique<Block>();
    made->address = std::exchange(next_, next_ + bytes);
    made->bytes = bytes;
    block = blocks_.emplace(made->address, std::move(made)).first->second.get();
  }
  block->allocated = true;
  block->requested = requested;
  block->pending.clear();
  block->history = {};
  guarded_.erase(block);
  Arena::get().protect_pinned(block->address, block->address + block->bytes, Arena::Rights::read_write);
  stats_.active_requests.increase(1);
  stats_.active_bytes.increase(block->bytes);
  return {reinterpret_cast<void*>(block->address), block, &free_block, c10::Device(c10::kCPU)};
}

void HostAllocator::free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  if (!block) return;
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex());
  for (const auto& [actor, stream] : block->users) block->pending.push_back(runtime.record_locked(stream));
  block->history.for_each_open(runtime.host_clock(), [&](const PastAccess& past) {
    if (block->users.count(past.actor) || !on(Switch::hazard_checker)) return;
    runtime.report_hazard_locked("the host frees pinned memory (" + get().describe(past.access.region.begin()) +
                                 "), which " + *past.kernel + " on " + runtime.name_of(past.actor) +
                                 (past.access.write ? " writes" : " reads") +
                                 ", without waiting for it and without record_event for that stream");
    block->pending.push_back(runtime.record_locked(runtime.stream_of_actor(past.actor)));
  });
  block->users.clear();
  block->allocated = false;
  get().stats_.active_requests.decrease(1);
  get().stats_.active_bytes.decrease(block->bytes);
  get().waiting_.push_back(block);
}

void HostAllocator::copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

bool HostAllocator::record_event(void* data, void* context, c10::Stream stream) {
  const Actor actor = Runtime::get().worker(stream).actor();
  const std::lock_guard lock(Runtime::get().mutex());
  // The context is known only for storages of this allocator; another owner's view is known by where it begins.
  const auto is_block = [&](const auto& entry) { return entry.second.get() == context; };
  const auto by_context = std::find_if(blocks_.begin(), blocks_.end(), is_block);
  const auto found = by_context != blocks_.end() ? by_context : blocks_.find(reinterpret_cast<uintptr_t>(data));
  if (found == blocks_.end() || !found->second->allocated) return false;
  found->second->users.emplace(actor, stream);
  return true;
}

void HostAllocator::empty_cache() {
  const std::lock_guard lock(Runtime::get().mutex());
  for (const auto& [bytes, block] : free_) Arena::get().release(block->address, block->address + bytes);
}

at::HostStats HostAllocator::get_stats() {
  const std::lock_guard lock(Runtime::get().mutex());
  return stats_;
}

void HostAllocator::reset_peak_stats() {
  const std::lock_guard lock(Runtime::get().mutex());
  stats_.active_requests.reset_peak();
  stats_.active_bytes.reset_peak();
}

bool HostAllocator::is_pinned(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (!Arena::get().pinned().contains(at)) return false;
  const std::lock_guard lock(Runtime::get().mutex());
  const Block* block = find(at);
  return block && block->allocated;
}

// --- with the runtime's mutex held

HostAllocator::Block* HostAllocator::find(uintptr_t address) const {
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  Block* block = std::prev(after)->second.get();
  return address < block->address + block->bytes ? block : nullptr;
}

History* HostAllocator::history_at(uintptr_t address) {
  Block* block = find(address);
  return block ? &block->history : nullptr;
}

std::string HostAllocator::describe(uintptr_t address) const {
  std::ostringstream text;
  const Block* block = find(address);
  if (!block) return "pinned host memory in no buffer";
  text << "byte " << address - block->address << " of a pinned buffer of " << block->requested << " bytes";
  if (!block->allocated) text << " that was freed";
  return text.str();
}

void HostAllocator::guard(uintptr_t address, const VectorClock& host) {
  Block* block = find(address);
  if (!block || !on(Switch::hazard_checker)) return;
  guarded_.insert(block);
  restrict(*block, host);
}

void HostAllocator::relax(const VectorClock& host) {
  for (auto it = guarded_.begin(); it != guarded_.end();) {
    Block& block = **it;
    Arena::get().protect_pinned(block.address, block.address + block.bytes, Arena::Rights::read_write);
    bool open = false;
    block.history.for_each_open(host, [&](const PastAccess&) { open = true; });
    if (open) restrict(block, host);
    it = open ? std::next(it) : guarded_.erase(it);
  }
}

// Takes rights away from the pages that open accesses use; a write leaves none.
void HostAllocator::restrict(Block& block, const VectorClock& host) {
  for (const bool write : {false, true}) {
    block.history.for_each_open(host, [&](const PastAccess& past) {
      if (past.access.write != write) return;
      Arena::get().protect_pinned(past.access.region.begin() / kPage * kPage, round_up(past.access.region.end(), kPage),
                                  write ? Arena::Rights::none : Arena::Rights::read);
    });
  }
}

bool HostAllocator::handle_fault_locked(uintptr_t address, bool write, const VectorClock& host) {
  Block* block = find(address);
  if (!block) return false;
  const PastAccess* past = block->history.conflict({Region::bytes(address, 1), write}, host);
  if (past) {
    Runtime::get().report_hazard_locked("the host" + std::string(write ? " writes " : " reads ") + describe(address) +
                                        ", which " + *past->kernel + " on " + Runtime::get().name_of(past->actor) +
                                        (past->access.write ? " writes" : " reads") + ", without waiting for it");
  }
  // The access goes on; a page that two buffers share is not watched any more until the host waits for something.
  const uintptr_t page = address / kPage * kPage;
  Arena::get().protect_pinned(page, page + kPage, Arena::Rights::read_write);
  return true;
}

}  // namespace pacer::simnpu
