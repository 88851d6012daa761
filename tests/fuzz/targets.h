// What is fuzzed: one function per kind of file that a stranger can hand us. libFuzzer drives them (entry.cpp), and the
// test program runs them over the corpus and over files that are built to cost as much as possible.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string_view>

namespace pacer::fuzz {

// Something that must never happen, whatever the input: the fuzzer and the tests report it.
struct Violation : std::logic_error {
  using std::logic_error::logic_error;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw Violation(what);
}

// Every target either returns or throws: pacer::Error that is no bug is caught inside, everything else is a finding.
struct Target {
  const char* name;  // also the folder of its corpus
  void (*run)(std::string_view input);
};

std::span<const Target> targets();

// Runs `body`, which may refuse its input with pacer::Error of any kind but `bug`. Returns whether it was accepted.
bool accepted(const std::function<void()>& body);
// How often it was, and how often not, since the program began: a corpus that is refused throughout tests nothing.
struct Tally {
  int64_t accepted = 0, refused = 0;
};
const Tally& tally();

// A file in memory that has a path, so that readers which map files see the input.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const;

 private:
  int descriptor_;
};

// The targets. `input` is the file, unless another form is stated.
void safetensors(
    std::string_view input);  // or, from '{' on: the header, a NUL byte, the data; the length is put before
void gguf(std::string_view input);
void tokenizer(std::string_view input);  // tokenizer.json
void json_lines(std::string_view input);
void jinja(std::string_view input);
void recipe(std::string_view input);   // YAML
void folders(std::string_view input);  // a line with the name, then the JSON file of a folder that is read
void chat(std::string_view input);     // a template, a NUL byte, the messages

}  // namespace pacer::fuzz
