// Stages with a record: what is finished, from what, and what came out. A finished stage is not done again.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "pacer/base/json.h"
#include "pacer/base/lock.h"

namespace pacer::workflow {

class StageBook {
 public:
  // folder/stages/NAME.json holds {"schema", "inputs", "result", "wall_s", "cpu_s"} of a finished stage. The folder is
  // locked while the object lives. Throws Error{usage} when another process works in it, Error{resources} when it
  // cannot be written.
  explicit StageBook(std::filesystem::path folder);

  // Whether NAME is finished with exactly these inputs.
  bool finished(const std::string& name, const Json& inputs) const;

  // Returns the recorded result when it is finished, else runs `body`, records its result last and returns it.
  // inputs: everything the result depends on (settings, results of earlier stages); compared as a whole.
  Json run(const std::string& name, const Json& inputs, const std::function<Json()>& body);

  // The record of a finished stage. Throws Error{bug} when there is none.
  Json record(const std::string& name) const;

 private:
  std::filesystem::path file(const std::string& name) const;
  std::filesystem::path folder_;
  std::unique_ptr<const FileLock> lock_;
};

}  // namespace pacer::workflow
