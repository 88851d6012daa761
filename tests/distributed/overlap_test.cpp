// That messages travel while the rank computes: the order of issuing, computing and waiting, on a link whose every
// message is seen. No clock decides anything here.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tanh.h>

#include "pacer/parallel/engine.h"
#include "pacer/parallel/modelled_link.h"
#include "pacer/parallel/timeline.h"
#include "tests/distributed/ranks.h"

namespace pacer::parallel {
namespace {

constexpr size_t kLayers = 4;
constexpr int64_t kWidth = 8;

std::string numbered(const char* what, size_t number) { return std::string(what) + " " + std::to_string(number); }

// What happened, in order; a message stands between its places of issue and of waiting.
struct Log {
  std::vector<std::string> computed;  // "forward 0", "backward 3"
  struct Message {
    std::string purpose;
    size_t issued = 0, waited = 0;  // how much had been computed, or begun
  };
  std::map<int64_t, Message> messages;

  // What was computed while each message of this purpose travelled, in the order of their issue.
  std::vector<std::vector<std::string>> behind(const std::string& purpose) const {
    std::vector<std::vector<std::string>> hidden;
    for (const auto& [number, message] : messages) {
      if (message.purpose != purpose) continue;
      hidden.emplace_back(computed.begin() + static_cast<ptrdiff_t>(message.issued),
                          computed.begin() + static_cast<ptrdiff_t>(message.waited));
    }
    return hidden;
  }
};

// Layers of one matrix each. The second of two steps, whose first forward meets what the first step published.
Log second_step(const Mesh& mesh, bool free_weights, bool overlap) {
  ImaginedWorld imagined(mesh.size(), LinkModel{});
  std::vector<at::Tensor> weights;
  std::vector<EngineParameter> parameters;
  std::vector<Segment> segments;
  std::vector<size_t> calls;
  Log log;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    weights.push_back(at::full({kWidth, kWidth}, 0.1).requires_grad_(true));
    const std::string name = numbered("matrix", layer);
    parameters.push_back({.name = name, .weight = weights.back()});
    segments.push_back({name, {name}, [&log, &weights, layer](const Tensors& inputs) -> Tensors {
                          log.computed.push_back(numbered("forward", layer));
                          const at::Tensor out = at::tanh(inputs[0].matmul(weights[layer]));
                          out.register_hook([&log, layer](const at::Tensor& gradient) {
                            log.computed.push_back(numbered("backward", layer));
                            return gradient;
                          });
                          return {out};
                        }});
    calls.push_back(layer);
  }
  EngineOptions options;
  options.mesh = mesh;
  options.free_weights = free_weights;
  options.overlap = overlap;
  options.plan.pack_small = false;
  Engine engine(imagined.world(), parameters, segments, calls, options);
  imagined.observe([&log](ImaginedWorld::Event event, const std::string& purpose, int64_t number) {
    Log::Message& message = log.messages[number];
    message.purpose = purpose;
    (event == ImaginedWorld::Event::issued ? message.issued : message.waited) = log.computed.size();
  });
  for (int step = 0; step < 2; ++step) {
    Tensors values = {at::full({2, kWidth}, 1.0)};
    for (const size_t call : calls) values = engine.run(call, values);
    engine.backward(values[0].sum(), 2);
    engine.step({.muon = 0.01, .adamw = 0.01});
  }
  engine.settle();
  imagined.observe({});
  return log;
}

bool contains(const std::vector<std::string>& list, const std::string& what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

TEST(Overlap, GradientsTravelDuringTheBackwardOfEarlierLayers) {
  run_ranks(1, [](World&) {
    for (const auto& [mesh, purpose] :
         {std::pair{Mesh{2, 1}, "reduce over the rows"}, {Mesh{1, 2}, "reduce in the row"}}) {
      const auto behind = second_step(mesh, false, true).behind(purpose);
      ASSERT_EQ(behind.size(), 2 * kLayers) << purpose;
      // Issued from the last layer to the first, in each of two steps; the first layer has nothing behind it.
      for (size_t i = 0; i < behind.size(); ++i) {
        const size_t layer = kLayers - 1 - i % kLayers;
        if (layer == 0) continue;
        EXPECT_TRUE(contains(behind[i], numbered("backward", layer - 1))) << purpose << " " << layer;
      }
    }
  });
}

TEST(Overlap, UpdatesTravelDuringTheNextForward) {
  run_ranks(1, [](World&) {
    const auto behind = second_step({2, 1}, false, true).behind("publish over the rows");
    ASSERT_EQ(behind.size(), 2 * kLayers);
    for (size_t layer = 1; layer < kLayers; ++layer) {
      EXPECT_TRUE(contains(behind[layer], numbered("forward", layer - 1))) << layer;
      EXPECT_FALSE(contains(behind[layer], numbered("forward", layer))) << "used before it arrived: " << layer;
    }
  });
}

TEST(Overlap, FreedWeightsTravelDuringTheLayerBefore) {
  run_ranks(1, [](World&) {
    const auto behind = second_step({1, 2}, true, true).behind("acquire");
    // Forward 0 .. 3, then backward 2 .. 0: the last layer's weights stay.
    const size_t each = 2 * kLayers - 1;
    ASSERT_EQ(behind.size(), 2 * each);
    for (size_t i = 0; i < behind.size(); ++i) {
      const size_t place = i % each;
      if (place == 0) continue;  // nothing comes before the first layer
      const std::string before =
          place < kLayers ? numbered("forward", place - 1) : numbered("backward", 2 * kLayers - 1 - place);
      EXPECT_TRUE(contains(behind[i], before)) << i;
    }
  });
}

// The picture of a schedule is what the engine does.
TEST(Overlap, TheTimelineIsWhatHappens) {
  run_ranks(1, [](World&) {
    for (const auto& [mesh, free_weights] :
         {std::pair{Mesh{2, 1}, false}, {Mesh{1, 2}, true}, {Mesh{1, 2}, false}, {Mesh{2, 2}, true}}) {
      SCOPED_TRACE(mesh.text() + (free_weights ? ", free" : ", kept"));
      const Log log = second_step(mesh, free_weights, true);
      ScheduleInput input{.calls = {}, .units = kLayers, .free_weights = free_weights};
      for (size_t layer = 0; layer < kLayers; ++layer) input.calls.push_back({layer});
      const Timeline timeline = make_timeline(input, mesh);
      std::map<std::string, std::vector<std::vector<std::string>>> drawn;
      for (const Timeline::Message& message : timeline.messages) {
        auto& behind = drawn[message.purpose].emplace_back();
        for (size_t i = message.issued; i < message.waited; ++i) {
          const std::string& work = timeline.work[i];
          if (work.starts_with("forward") || work.starts_with("backward")) behind.push_back(work);
        }
      }
      EXPECT_EQ(drawn.size(), static_cast<size_t>(mesh.replicate > 1 ? 2 : 0) + (mesh.shard > 1 ? 2 : 0));
      for (const auto& [purpose, behind] : drawn) {
        // A column publishes what its own ranks own, which are not all layers here.
        if (mesh.size() == 4 && purpose == "publish over the rows") continue;
        auto seen = log.behind(purpose);
        ASSERT_GE(seen.size(), behind.size()) << purpose;
        seen.resize(behind.size());
        EXPECT_EQ(seen, behind) << purpose;
      }
    }
  });
}

TEST(Overlap, WithoutItEveryMessageIsWaitedForAtOnce) {
  run_ranks(1, [](World&) {
    for (const auto& [mesh, free_weights] : {std::pair{Mesh{2, 1}, false}, {Mesh{1, 2}, true}, {Mesh{2, 2}, true}}) {
      const Log log = second_step(mesh, free_weights, false);
      ASSERT_FALSE(log.messages.empty());
      for (const auto& [number, message] : log.messages) {
        EXPECT_EQ(message.issued, message.waited) << mesh.text() << " " << message.purpose << " " << number;
      }
    }
  });
}

}  // namespace
}  // namespace pacer::parallel
