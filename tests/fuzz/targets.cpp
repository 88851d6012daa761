#include "tests/fuzz/targets.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "pacer/base/error.h"

namespace pacer::fuzz {
namespace {

Tally counted;

}  // namespace

const Tally& tally() { return counted; }

std::span<const Target> targets() {
  static constexpr std::array<Target, 8> kTargets = {{{"safetensors", safetensors},
                                                      {"gguf", gguf},
                                                      {"tokenizer", tokenizer},
                                                      {"json_lines", json_lines},
                                                      {"jinja", jinja},
                                                      {"recipe", recipe},
                                                      {"folders", folders},
                                                      {"chat", chat}}};
  return kTargets;
}

bool accepted(const std::function<void()>& body) {
  try {
    body();
    ++counted.accepted;
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw Violation(std::string("an input was reported as a bug: ") + error.what());
    require(error.what()[0] != '\0', "an error without a message");
    ++counted.refused;
    return false;
  }
}

MemoryFile::MemoryFile(std::string_view content) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
  require(descriptor_ >= 0, "memfd_create failed");
  for (size_t done = 0; done < content.size();) {
    const ssize_t wrote = ::write(descriptor_, content.data() + done, content.size() - done);
    require(wrote > 0 || errno == EINTR, "a write to memory failed");
    done += wrote > 0 ? static_cast<size_t>(wrote) : 0;
  }
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

std::filesystem::path MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

}  // namespace pacer::fuzz
