#include "pacer/bench/works.h"

#include <utility>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/nearest.h"
#include "pacer/base/resources.h"

namespace pacer::bench {
namespace {

std::vector<std::string> keys(const OrderedJson& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

[[noreturn]] void unknown(const std::string& what, const std::string& name, const std::vector<std::string>& allowed) {
  const std::string meant = did_you_mean(name, allowed);
  throw Error(
      ErrorKind::usage, what + " '" + name + "' does not exist, allowed: " + quoted_list(allowed),
      (meant.empty() ? "" : "did you mean '" + meant + "'? ") + std::string("'pacer bench --list' shows all cases"));
}

}  // namespace

const OrderedJson& Work::at(const std::string& field) const {
  const auto found = fields_.find(field);
  if (found == fields_.end()) {
    throw Error(ErrorKind::format, place_ + ": " + bench_ + "." + name_ + " has no field '" + field + "'");
  }
  return *found;
}

namespace {

template <typename T>
T value(const OrderedJson& json, bool right_type, const std::string& where, const char* allowed) {
  if (!right_type) throw Error(ErrorKind::format, where + " is " + json.dump() + ", allowed: " + allowed);
  return json.get<T>();
}

}  // namespace

int64_t Work::integer(const std::string& field) const {
  const OrderedJson& json = at(field);
  const std::string where = place_ + ": " + bench_ + "." + name_ + "." + field;
  const auto number = value<int64_t>(json, json.is_number_integer(), where, "an integer");
  if (number < 0) throw Error(ErrorKind::format, where + " is " + json.dump() + ", allowed: 0 or more");
  return number;
}

double Work::number(const std::string& field) const {
  const OrderedJson& json = at(field);
  return value<double>(json, json.is_number(), place_ + ": " + bench_ + "." + name_ + "." + field, "a number");
}

std::string Work::text(const std::string& field) const {
  const OrderedJson& json = at(field);
  return value<std::string>(json, json.is_string(), place_ + ": " + bench_ + "." + name_ + "." + field, "a string");
}

bool Work::flag(const std::string& field) const {
  const OrderedJson& json = at(field);
  return value<bool>(json, json.is_boolean(), place_ + ": " + bench_ + "." + name_ + "." + field, "true or false");
}

std::vector<int64_t> Work::integers(const std::string& field) const {
  const OrderedJson& json = at(field);
  bool right = json.is_array();
  if (right) {
    for (const OrderedJson& entry : json) right = right && entry.is_number_integer();
  }
  return value<std::vector<int64_t>>(json, right, place_ + ": " + bench_ + "." + name_ + "." + field,
                                     "a list of integers");
}

target::ModelConfig Work::model(const std::string& field, const std::string& architecture) const {
  const std::string wanted = text(field);
  const auto found = models_.find(wanted);
  if (found == models_.end()) {
    throw Error(ErrorKind::format, place_ + ": " + bench_ + "." + name_ + "." + field + " is '" + wanted +
                                       "', allowed: " + quoted_list(keys(models_)));
  }
  try {
    const OrderedJson& sizes = *found;
    target::ModelConfig config;
    config.architecture = architecture.empty() ? sizes.at("arch").get<std::string>() : architecture;
    config.vocab_size = sizes.at("vocab").get<int64_t>();
    config.hidden_size = sizes.at("hidden").get<int64_t>();
    config.layers = sizes.at("layers").get<int64_t>();
    config.intermediate_size = sizes.at("intermediate").get<int64_t>();
    config.heads = sizes.at("heads").get<int64_t>();
    config.kv_heads = sizes.at("kv_heads").get<int64_t>();
    config.head_dim = sizes.at("head_dim").get<int64_t>();
    config.max_position = sizes.at("max_pos").get<int64_t>();
    config.rms_epsilon = sizes.at("rms_eps").get<double>();
    config.rope.theta = sizes.at("rope_theta").get<double>();
    config.tied_embeddings = sizes.at("tie_embeddings").get<bool>();
    config.qk_norm = architecture.empty() ? sizes.at("qk_norm").get<bool>() : architecture == "qwen3";
    return config;
  } catch (const OrderedJson::exception& error) {
    throw Error(ErrorKind::format, place_ + ": models." + wanted + ": " + error.what());
  }
}

std::filesystem::path Works::default_file() { return resource("data/bench/workloads.json"); }

Works Works::read(const std::filesystem::path& file) {
  Works works;
  works.place_ = file.string();
  works.json_ = parse_ordered_json(read_file(file, uint64_t{1} << 20), works.place_);
  const auto is_object = [](const OrderedJson& json, const char* name) {
    return json.is_object() && json.contains(name) && json.at(name).is_object();
  };
  bool right = is_object(works.json_, "models") && is_object(works.json_, "benches") && works.json_.contains("seed") &&
               works.json_.at("seed").is_number_unsigned();
  if (right) {
    for (const OrderedJson& bench : works.json_.at("benches")) {
      right = right && is_object(bench, "cases") && (!bench.contains("defaults") || is_object(bench, "defaults"));
      if (!right) break;
      for (const OrderedJson& fields : bench.at("cases")) right = right && fields.is_object();
    }
  }
  if (!right) {
    throw Error(ErrorKind::format,
                works.place_ + ": not a file of works: it needs seed, models and benches with defaults and cases",
                "data/bench/workloads.json shows the form");
  }
  return works;
}

std::vector<std::string> Works::benches() const { return keys(json_.at("benches")); }

const OrderedJson& Works::bench(const std::string& name) const {
  const OrderedJson& all = json_.at("benches");
  const auto found = all.find(name);
  if (found == all.end()) unknown("the bench", name, keys(all));
  return *found;
}

std::vector<std::string> Works::cases(const std::string& name) const { return keys(bench(name).at("cases")); }

Work Works::work(const std::string& bench_name, const std::string& name) const {
  const OrderedJson& all = bench(bench_name);
  const auto found = all.at("cases").find(name);
  if (found == all.at("cases").end()) unknown("the case of " + bench_name, name, cases(bench_name));
  OrderedJson fields = all.value("defaults", OrderedJson::object());
  fields.update(*found);
  return Work(place_, bench_name, name, std::move(fields), json_.at("models"), json_.at("seed").get<uint64_t>());
}

}  // namespace pacer::bench
