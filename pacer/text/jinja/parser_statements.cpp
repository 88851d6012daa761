// Tags, and what all parsing shares.
#include <algorithm>

#include "pacer/text/jinja/parser.h"
#include "pacer/text/jinja/parser_state.h"

namespace pacer::text::jinja {
namespace {

constexpr int kMaxLevel = 150;
constexpr size_t kMaxSource = size_t{4} << 20;

}  // namespace

Parser::Level::Level(Parser& parser) : parser_(parser) {
  if (++parser_.level_ > kMaxLevel) parser_.fail("nested deeper than " + std::to_string(kMaxLevel));
}

bool Parser::is_symbol(std::string_view symbol) const {
  return current().type == TokenType::symbol && current().text == symbol;
}

bool Parser::is_name(std::string_view name) const {
  return current().type == TokenType::name && current().text == name;
}

bool Parser::skip_symbol(std::string_view symbol) {
  if (!is_symbol(symbol)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

void Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) unexpected(std::string(symbol));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(std::string(name));
}

std::string Parser::expect_any_name() {
  if (current().type != TokenType::name) unexpected("name");
  return next().text;
}

void Parser::expect(TokenType type) {
  if (current().type != type) unexpected(described(type));
  next();
}

void Parser::unexpected(const std::string& wanted) const {
  if (current().type == TokenType::end) fail("unexpected end of template, expected '" + wanted + "'.");
  fail("expected token '" + wanted + "', got '" + described(current()) + "'");
}

std::string Parser::described(TokenType type) {
  switch (type) {
    case TokenType::data:
      return "template data / text";
    case TokenType::variable_begin:
      return "begin of print statement";
    case TokenType::variable_end:
      return "end of print statement";
    case TokenType::block_begin:
      return "begin of statement block";
    case TokenType::block_end:
      return "end of statement block";
    case TokenType::name:
      return "name";
    case TokenType::string:
      return "string";
    case TokenType::integer:
      return "integer";
    case TokenType::real:
      return "float";
    case TokenType::symbol:
      return "symbol";
    case TokenType::end:
      return "end of template";
  }
  return "token";
}

std::string Parser::described(const Token& token) {
  return token.type == TokenType::name || token.type == TokenType::symbol ? token.text : described(token.type);
}

Symbol Parser::symbol(const std::string& name) {
  const auto [found, added] = symbols_.emplace(name, static_cast<Symbol>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

// Everything up to one of the end tags, whose name is then the current token. No end tags: up to the end.
Body Parser::statements(std::initializer_list<std::string_view> end_tags, std::string_view opened_by, Place opened_at) {
  const Level level(*this);
  Body body;
  while (current().type != TokenType::end) {
    const Token token = next();
    if (token.type == TokenType::data) {
      body.push_back({token.place, Literal{token.text}});
    } else if (token.type == TokenType::variable_begin) {
      Output output;
      output.values.push_back(tuple());
      expect(TokenType::variable_end);
      body.push_back({token.place, std::move(output)});
    } else {
      if (std::any_of(end_tags.begin(), end_tags.end(), [&](std::string_view tag) { return is_name(tag); })) {
        return body;
      }
      body.push_back(statement());
      expect(TokenType::block_end);
    }
  }
  if (end_tags.size() > 0) {
    std::string wanted;
    for (const std::string_view tag : end_tags) {
      wanted += (wanted.empty() ? "'" : " or '") + std::string(tag) + "'";
    }
    fail("Unexpected end of template. Jinja was looking for the following tags: " + wanted +
         ". The innermost block that needs to be closed is '" + std::string(opened_by) + "' of line " +
         std::to_string(opened_at.line) + ".");
  }
  return body;
}

// The rest of an opening tag and its body; the end tag's name is the current token.
Body Parser::block(std::initializer_list<std::string_view> end_tags, std::string_view opened_by, Place opened_at) {
  skip_symbol(":");
  expect(TokenType::block_end);
  return statements(end_tags, opened_by, opened_at);
}

Statement Parser::statement() {
  const Token tag = current();
  if (tag.type != TokenType::name) fail("tag name expected");
  next();
  const std::string& name = tag.text;
  constructs_.insert(name);
  if (name == "if") return if_statement(tag.place);
  if (name == "for") return for_statement(tag.place);
  if (name == "set") return set_statement(tag.place);
  if (name == "with") return with_statement(tag.place);
  if (name == "macro") return macro_statement(tag.place);
  if (name == "call") return call_statement(tag.place);
  if (name == "filter") return filter_statement(tag.place);
  if (name == "generation") return generation_statement(tag.place);
  if (name == "print") return print_statement(tag.place);
  if (name == "break" || name == "continue") return jump_statement(tag.place, name == "break");
  if (name == "block" || name == "extends" || name == "include" || name == "import" || name == "from" ||
      name == "autoescape") {
    syntax_error(place_, tag.place, "the tag '" + name + "' is not supported: a chat template is a single text");
  }
  syntax_error(place_, tag.place, "Encountered unknown tag '" + name + "'.");
}

Statement Parser::if_statement(Place place) {
  If node;
  ++conditions_;
  for (;;) {
    ExpressionPtr condition = tuple(false, /*with_conditional=*/false);
    Body body = block({"elif", "else", "endif"}, "if", place);
    node.branches.emplace_back(std::move(condition), std::move(body));
    const std::string tag = next().text;
    if (tag == "elif") continue;
    if (tag == "else") {
      node.otherwise = block({"endif"}, "if", place);
      next();
    }
    break;
  }
  --conditions_;
  return {place, std::move(node)};
}

Statement Parser::for_statement(Place place) {
  For node;
  node.target = target(/*with_namespace=*/false, {"in"});
  expect_name("in");
  node.iterable = tuple(false, /*with_conditional=*/false, {"recursive"});
  if (skip_name("if")) node.condition = expression();
  node.recursive = skip_name("recursive");
  ++loops_;
  node.body = block({"endfor", "else"}, "for", place);
  --loops_;
  if (next().text == "else") {
    node.otherwise = block({"endfor"}, "for", place);
    next();
  }
  return {place, std::move(node)};
}

Statement Parser::set_statement(Place place) {
  Target assigned = target(/*with_namespace=*/true);
  if (skip_symbol("=")) return {place, Set{std::move(assigned), tuple()}};
  ExpressionPtr chain = is_symbol("|") ? filter_chain(nullptr, /*started=*/false) : nullptr;
  Body body = block({"endset"}, "set", place);
  next();
  return {place, SetBlock{std::move(assigned), std::move(chain), std::move(body)}};
}

Statement Parser::with_statement(Place place) {
  With node;
  while (current().type != TokenType::block_end) {
    if (!node.assignments.empty()) expect_symbol(",");
    Target assigned = target(/*with_namespace=*/false);
    expect_symbol("=");
    node.assignments.emplace_back(std::move(assigned), expression());
  }
  node.body = block({"endwith"}, "with", place);
  next();
  return {place, std::move(node)};
}

void Parser::signature(MacroDefinition& macro) {
  expect_symbol("(");
  while (!is_symbol(")")) {
    if (!macro.parameters.empty()) {
      expect_symbol(",");
      if (is_symbol(")")) break;
    }
    const std::string name = expect_any_name();
    macro.parameters.emplace_back(name, symbol(name));
    if (skip_symbol("=")) {
      macro.defaults.push_back(expression());
    } else if (!macro.defaults.empty()) {
      fail("non-default argument follows default argument");
    }
  }
  expect_symbol(")");
}

// A macro or the body of a call is a function of its own: an outer loop cannot be left from inside.
Body Parser::function_body(MacroDefinition& macro, std::string_view end_tag, std::string_view opened_by, Place place) {
  macros_.push_back(&macro);
  const int loops = std::exchange(loops_, 0);
  Body body = block({end_tag}, opened_by, place);
  loops_ = loops;
  macros_.pop_back();
  next();
  return body;
}

Statement Parser::macro_statement(Place place) {
  auto macro = std::make_shared<MacroDefinition>();
  macro->name = expect_any_name();
  const Symbol name = symbol(macro->name);
  signature(*macro);
  macro->body = function_body(*macro, "endmacro", "macro", place);
  return {place, MacroStatement{name, std::move(macro)}};
}

Statement Parser::call_statement(Place place) {
  auto caller = std::make_shared<MacroDefinition>();
  caller->name = "caller";
  if (is_symbol("(")) signature(*caller);
  ExpressionPtr called = expression();
  if (!std::holds_alternative<Call>(called->node)) fail("expected call");
  caller->body = function_body(*caller, "endcall", "call", place);
  return {place, CallBlock{std::move(called), std::move(caller)}};
}

Statement Parser::filter_statement(Place place) {
  ExpressionPtr chain = filter_chain(nullptr, /*started=*/true);
  Body body = block({"endfilter"}, "filter", place);
  next();
  return {place, FilterBlock{std::move(chain), std::move(body)}};
}

Statement Parser::generation_statement(Place place) {
  MacroDefinition scope;  // a function of its own, as far as loops are concerned
  return {place, Generation{function_body(scope, "endgeneration", "generation", place)}};
}

Statement Parser::print_statement(Place place) {
  Output output;
  while (current().type != TokenType::block_end) {
    if (!output.values.empty()) expect_symbol(",");
    output.values.push_back(expression());
  }
  return {place, std::move(output)};
}

Statement Parser::jump_statement(Place place, bool leaves) {
  if (loops_ == 0) {
    syntax_error(place_, place, leaves ? "'break' outside loop" : "'continue' not properly in loop");
  }
  if (leaves) return {place, Break{}};
  return {place, Continue{}};
}

Target Parser::single_target(bool with_namespace) {
  Target out;
  out.place = current().place;
  if (skip_symbol("(")) {
    out = target(with_namespace);
    expect_symbol(")");
    return out;
  }
  const Token token = current();
  const std::string name = expect_any_name();
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) syntax_error(place_, token.place, "can't assign to '" + name + "'");
  }
  out.symbol = symbol(name);
  if (with_namespace && skip_symbol(".")) {
    out.kind = Target::Kind::attribute;
    out.attribute = expect_any_name();
  }
  return out;
}

Target Parser::target(bool with_namespace, std::initializer_list<std::string_view> end_names) {
  const Level level(*this);
  Target first = single_target(with_namespace);
  if (!is_symbol(",")) return first;
  Target out;
  out.kind = Target::Kind::tuple;
  out.place = first.place;
  out.items.push_back(std::move(first));
  while (skip_symbol(",")) {
    if (is_symbol("=") || is_symbol(")") || tuple_ends(end_names)) break;
    out.items.push_back(single_target(with_namespace));
  }
  return out;
}

Template Parser::run() {
  Template out;
  out.body = statements({}, "", {});
  if (current().type != TokenType::end) unexpected("end of template");
  out.names = std::move(names_);
  out.symbols = std::move(symbols_);
  out.constructs.assign(constructs_.begin(), constructs_.end());
  return out;
}

Template parse(const std::string& source, const std::string& place) {
  if (source.size() > kMaxSource) {
    throw Error(ErrorKind::format, place + ": a template of " + std::to_string(source.size()) + " bytes, at most " +
                                       std::to_string(kMaxSource) + " are read");
  }
  return Parser(tokenize(source, place), place).run();
}

}  // namespace pacer::text::jinja
