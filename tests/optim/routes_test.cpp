#include "pacer/optim/routes.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "pacer/base/error.h"

namespace pacer::optim {
namespace {

using Parameters = std::vector<std::pair<std::string, std::vector<int64_t>>>;

Parameters small_model() {
  return {{"model.embed_tokens.weight", {100, 16}},
          {"model.layers.0.self_attn.qkv_proj.weight", {32, 16}},
          {"model.layers.0.mlp.experts.weight", {4, 8, 16}},
          {"model.layers.0.norm.weight", {16}},
          {"markov_head.w1.weight", {100, 4}},
          {"gate", {}},
          {"lm_head.weight", {100, 16}}};
}

GroupRule rule(const std::string& pattern) {
  GroupRule made;
  made.pattern = pattern;
  return made;
}

GroupRule route(const std::string& pattern, Route wanted) {
  GroupRule made = rule(pattern);
  made.route = wanted;
  return made;
}

std::map<std::string, RoutedParameter> by_name(const std::vector<RoutedParameter>& routed) {
  std::map<std::string, RoutedParameter> map;
  for (const RoutedParameter& parameter : routed) map[parameter.name] = parameter;
  return map;
}

TEST(Routes, MatricesTakeMuonExceptEmbeddingsAndHeads) {
  RouteOptions options;
  options.matrix = Route::muon;
  const auto routed = by_name(route_parameters(small_model(), options));
  EXPECT_EQ(routed.at("model.layers.0.self_attn.qkv_proj.weight").route, Route::muon);
  EXPECT_EQ(routed.at("model.layers.0.mlp.experts.weight").route, Route::muon);
  EXPECT_EQ(routed.at("model.embed_tokens.weight").route, Route::adamw);
  EXPECT_EQ(routed.at("lm_head.weight").route, Route::adamw);
  EXPECT_EQ(routed.at("markov_head.w1.weight").route, Route::adamw);
  EXPECT_EQ(routed.at("model.layers.0.norm.weight").route, Route::adamw);
  EXPECT_EQ(routed.at("gate").route, Route::adamw);
}

// Whatever the rules are: every matrix that does not take muon names the rule that kept it away.
TEST(Routes, NoMatrixMissesMuonSilently) {
  const std::vector<std::vector<GroupRule>> settings = {
      {},
      {route("*.experts.*", Route::adamw)},
      {route("*embed*", Route::muon), route("*", Route::sharded_adamw)},
      {route("lm_head.weight", Route::sharded_adamw), route("*norm*", Route::adamw)},
  };
  for (const auto& rules : settings) {
    RouteOptions options;
    options.matrix = Route::muon;
    options.rules = rules;
    const auto routed = route_parameters(small_model(), options);
    const auto table = route_table(routed, UpdateScale::match_rms_adamw);
    ASSERT_EQ(table.size(), small_model().size());
    for (size_t i = 0; i < routed.size(); ++i) {
      EXPECT_FALSE(routed[i].reason.empty());
      EXPECT_NE(table[i].find(routed[i].reason), std::string::npos);
      if (routed[i].sizes.size() < 2 || routed[i].route == Route::muon) continue;
      EXPECT_NE(routed[i].reason.find("rule '"), std::string::npos) << table[i];
      const size_t from = routed[i].reason.find('\'') + 1;
      const std::string pattern = routed[i].reason.substr(from, routed[i].reason.find('\'', from) - from);
      EXPECT_TRUE(matches(pattern, routed[i].name)) << table[i];
    }
  }
}

TEST(Routes, RulesWinFieldByFieldInTheirOrder) {
  RouteOptions options;
  options.matrix = Route::muon;
  GroupRule fused = rule("*qkv_proj*"), slow = rule("*.layers.*"), late = rule("*");
  fused.layout = MatrixLayout{.stacked = false, .row_blocks = {16, 8, 8}};
  slow.rate = 0.5, slow.weight_decay = 0.0;
  late.rate = 7.0;
  options.rules = {fused, slow, late, route("lm_head.*", Route::sharded_adamw)};
  const auto routed = by_name(route_parameters(small_model(), options));
  const RoutedParameter& qkv = routed.at("model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(qkv.route, Route::muon);
  EXPECT_EQ(qkv.layout.row_blocks, (std::vector<int64_t>{16, 8, 8}));
  EXPECT_EQ(qkv.rate, 0.5);
  EXPECT_EQ(qkv.weight_decay, 0.0);
  EXPECT_EQ(routed.at("lm_head.weight").route, Route::sharded_adamw);
  EXPECT_EQ(routed.at("lm_head.weight").rate, 7.0);
  EXPECT_FALSE(routed.at("lm_head.weight").weight_decay.has_value());
}

TEST(Routes, TheTableSaysScaleAndReason) {
  RouteOptions options;
  options.matrix = Route::muon;
  GroupRule fused = rule("*qkv_proj*");
  fused.layout = MatrixLayout{.stacked = false, .row_blocks = {16, 8, 8}};
  options.rules = {fused};
  const auto table = route_table(route_parameters(small_model(), options), UpdateScale::match_rms_adamw);
  EXPECT_EQ(table[0],
            "model.embed_tokens.weight                 100x16  adamw          built-in rule '*embed*': embeddings and "
            "heads");
  // 0.2 sqrt(16)
  EXPECT_EQ(table[1],
            "model.layers.0.self_attn.qkv_proj.weight  32x16   muon           a matrix, scale 0.800 in 3 matrices");
  EXPECT_EQ(table[5], "gate                                      scalar  adamw          a scalar");
}

TEST(Routes, RefuseWhatCannotBeMeant) {
  const auto refused = [](const RouteOptions& options) {
    try {
      route_parameters(small_model(), options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  RouteOptions options;
  options.rules = {rule("markow_head.*")};
  EXPECT_EQ(refused(options), "optimizer rule 'markow_head.*' matches no parameter");
  options.rules = {route("gate", Route::muon)};
  EXPECT_EQ(refused(options), "gate []: a scalar cannot take the route muon");
  GroupRule layout = route("lm_head.weight", Route::muon);
  layout.layout = MatrixLayout{.stacked = false, .row_blocks = {99}};
  options.rules = {layout};
  EXPECT_NE(refused(options), "accepted");
  options.rules.clear();
  options.rest = Route::muon;
  EXPECT_NE(refused(options), "accepted");
  Parameters twice = small_model();
  twice.push_back(twice.front());
  EXPECT_THROW(route_parameters(twice, {}), Error);
}

TEST(Routes, HaveNames) {
  for (const Route wanted : {Route::muon, Route::adamw, Route::sharded_adamw}) {
    EXPECT_EQ(parse_route(name_of(wanted)), wanted);
  }
  EXPECT_THROW(parse_route("adam"), Error);
}

TEST(RoutePatterns, MatchLikeAShell) {
  EXPECT_TRUE(matches("markov_head.*", "markov_head.markov_w1.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*w1*", "markov_head.markov_w1.weight"));
  EXPECT_TRUE(matches("layers.*.q_proj.weight", "layers.11.self_attn.q_proj.weight"));
  EXPECT_FALSE(matches("markov_head", "markov_head.markov_w1.weight"));
  EXPECT_FALSE(matches("*.bias", "fc.weight"));
  EXPECT_FALSE(matches("", "fc"));
}

}  // namespace
}  // namespace pacer::optim
