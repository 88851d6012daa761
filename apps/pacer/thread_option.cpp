#include "apps/pacer/thread_option.h"

#include "pacer/decode/thread_choice.h"

namespace pacer::cli {
namespace {

constexpr const char* kAuto = "auto";

}  // namespace

void add_threads(CLI::App& command, std::string& threads) {
  command
      .add_option("--threads", threads,
                  "A number, 0: as the machine has cores, auto: one or all, whichever decodes faster now")
      ->check(CLI::IsMember({kAuto}) | CLI::Range(0, 4096))
      ->capture_default_str();
}

void set_threads(const std::string& threads, device::Runtime& runtime) {
  if (threads == kAuto) return;
  if (const int number = std::stoi(threads); number > 0) runtime.set_threads(number);
}

void choose_threads(const std::string& threads, const target::Target& target, const text::ModelText& text,
                    device::Runtime& runtime) {
  if (threads == kAuto) decode::choose_threads(target, decode::trial_prompt(text), runtime);
}

}  // namespace pacer::cli
