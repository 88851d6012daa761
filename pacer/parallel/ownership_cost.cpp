#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "pacer/parallel/ownership_plan.h"

namespace pacer::parallel {
namespace {

constexpr int64_t kIterations = 5;  // of Newton-Schulz

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool looks_like_base(const PlanParameter& parameter) {
  constexpr std::array<std::string_view, 10> kWords = {"embed", "embedding", "lm_head", "norm", "layernorm",
                                                       "ln_",   ".ln",       "bias",    "rope", "rotary"};
  const std::string name = lower(parameter.name);
  return parameter.shape.size() < 2 ||
         std::any_of(
             kWords.begin(), kWords.end(), [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

struct Sides {
  int64_t product, small, big;
};

Sides sides(const PlanParameter& parameter) {
  const int64_t elements = parameter.elements(), rows = parameter.shape.empty() ? 1 : parameter.shape[0];
  const int64_t columns = rows == 0 ? 0 : elements / rows;
  return {rows * columns, std::max<int64_t>(1, std::min(rows, columns)), std::max(rows, columns)};
}

int64_t guessed_cost(const PlanParameter& parameter) {
  const int64_t elements = std::max<int64_t>(1, parameter.elements());
  if (looks_like_base(parameter)) return std::max<int64_t>(1, elements / 1'000'000);
  const auto [product, small, big] = sides(parameter);
  const int64_t products = kIterations * small * (product + 2 * big * small);
  return std::max<int64_t>(1, products / 1'000'000'000) + std::max<int64_t>(1, elements / 4'000'000);
}

// In millions of multiplications. An element of AdamW moves 28 bytes (weight and two moments read and written, the
// gradient read); machines multiply about ten times while they move a byte.
int64_t route_cost(const PlanParameter& parameter) {
  constexpr int64_t kAdamW = 280, kMomentum = 120;  // per element
  const int64_t elements = parameter.elements();
  int64_t multiplications = kAdamW * elements;
  if (parameter.route == Route::muon) {
    const auto [product, small, big] = sides(parameter);
    multiplications = kMomentum * elements + kIterations * small * small * (2 * big + small);
  }
  return std::max<int64_t>(1, multiplications / 1'000'000);
}

}  // namespace

int64_t PlanParameter::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

std::optional<std::string> layer_of(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = name.find('.', begin);
    if (end == std::string::npos) return std::nullopt;
    const std::string_view segment = std::string_view(name).substr(begin, end - begin);
    if (segment == "layers" || segment == "blocks") {
      const std::string layer = name.substr(0, name.find('.', end + 1));
      return begin == 0 ? "_root." + layer : layer;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

int64_t update_cost(const PlanParameter& parameter, CostModel model) {
  switch (model) {
    case CostModel::numel:
      return std::max<int64_t>(1, parameter.elements());
    case CostModel::route:
      return route_cost(parameter);
    case CostModel::optimizer:
      break;
  }
  return guessed_cost(parameter);
}

}  // namespace pacer::parallel
