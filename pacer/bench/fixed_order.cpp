// What it costs that a row has the same bits whatever it is computed with: all products of a token's way through a
// model, by the row kernels, which add in one order, and by the library, which adds as it likes.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <c10/core/InferenceMode.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/bench/benches.h"
#include "pacer/bench/library_products.h"
#include "pacer/bench/models.h"
#include "pacer/nn/row_linear.h"
#include "pacer/target/exact_rows.h"
#include "pacer/target/weights.h"

namespace pacer::bench {
namespace {

template <typename T>
struct Layers {
  std::vector<at::Tensor> weights;
  std::vector<nn::RowLinear<T>> fixed;
  std::map<int64_t, at::Tensor> rows;  // by width
  at::Tensor sums;

  // As decoding does it: at most kExactRows rows a call.
  double fixed_s(int64_t count) {
    const Stopwatch watch;
    for (int64_t first = 0; first < count; first += target::kExactRows) {
      for (const nn::RowLinear<T>& layer : fixed) {
        const T* x = static_cast<const T*>(rows.at(layer.inputs()).const_data_ptr()) + first * layer.inputs();
        layer.sums(x, std::min(target::kExactRows, count - first), sums.mutable_data_ptr<float>());
      }
    }
    return watch.cpu();
  }

  // Every way once through all layers.
  std::map<std::string, double> free_order_s(int64_t count) {
    std::map<std::string, std::vector<std::function<void()>>> ways;
    for (const at::Tensor& weight : weights) {
      for (Call& call : library_products(rows.at(weight.size(1)).slice(0, 0, count), weight)) {
        ways[call.name].push_back(std::move(call.run));
      }
    }
    std::map<std::string, double> seconds;
    for (const auto& [name, calls] : ways) {
      const Stopwatch watch;
      for (const auto& call : calls) call();
      seconds[name] = watch.cpu();
    }
    return seconds;
  }
};

template <typename T>
Result measure(const Work& work, const Settings& settings) {
  const at::ScalarType dtype = settings.scalar_type();
  const target::ModelConfig config = work.model("model");
  const std::vector<int64_t> counts = work.integers("rows");
  if (counts.empty() || *std::min_element(counts.begin(), counts.end()) < 1) {
    throw Error(ErrorKind::format, "fixed_order." + work.name() + ".rows: expected numbers of rows, 1 or more");
  }
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  Values values(work.seed());
  Layers<T> layers;
  nn::PanelArena arena;
  int64_t widest = 0;
  const auto add = [&](const std::vector<int64_t>& shape) {
    layers.weights.push_back(values.normal(shape, 0.02, dtype));
    layers.fixed.emplace_back(std::vector<at::Tensor>{layers.weights.back()}, arena);
    widest = std::max(widest, layers.fixed.back().stride());
    at::Tensor& rows = layers.rows[shape[1]];
    if (!rows.defined()) rows = values.normal({most, shape[1]}, 1.0, dtype);
  };
  for (const auto& [name, shape] : target::weight_shapes(config)) {
    if (shape.size() == 2 && name.starts_with("model.layers.")) add(shape);
  }
  add({config.vocab_size, config.hidden_size});
  layers.sums = values.normal({target::kExactRows, widest}, 1.0, at::kFloat);

  std::map<int64_t, std::vector<double>> fixed;
  std::map<int64_t, std::map<std::string, std::vector<double>>> library;
  Result result;
  result.timings = time_work(work, settings, [&] {
    for (const int64_t count : counts) {  // in turn: a machine that slows down slows both
      fixed[count].push_back(layers.fixed_s(count));
      for (const auto& [name, seconds] : layers.free_order_s(count)) library[count][name].push_back(seconds);
    }
  });
  OrderedJson by_rows = OrderedJson::object();
  for (const int64_t count : counts) {
    const double ours = median(fixed[count]);
    std::string fastest;
    double theirs = 0;
    for (const auto& [name, seconds] : library[count]) {
      const double cpu = median(seconds);
      if (fastest.empty() || cpu < theirs) fastest = name, theirs = cpu;
    }
    by_rows[std::to_string(count)] = {{"fixed_order_cpu_ms", 1e3 * ours},
                                      {"library_cpu_ms", 1e3 * theirs},
                                      {"library_call", fastest},
                                      {"fixed_order_over_library", ours / theirs}};
  }
  result.work = {{"model", work.text("model")}, {"matrix_elements", matrix_elements(config)}, {"rows", by_rows}};
  return result;
}

}  // namespace

Result fixed_order(const Work& work, const Settings& settings, device::Runtime&) {
  const c10::InferenceMode inference;
  return settings.scalar_type() == at::kFloat ? measure<float>(work, settings) : measure<uint16_t>(work, settings);
}

}  // namespace pacer::bench
