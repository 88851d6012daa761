// What the two halves of the parser, expressions and statements, share.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pacer/text/jinja/lexer.h"
#include "pacer/text/jinja/syntax.h"

namespace pacer::text::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& place) : tokens_(std::move(tokens)), place_(place) {}
  Template run();

 private:
  // tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_symbol(std::string_view symbol) const;
  bool is_name(std::string_view name) const;
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  void expect(TokenType type);
  [[noreturn]] void fail(const std::string& message) const { syntax_error(place_, current().place, message); }
  [[noreturn]] void unexpected(const std::string& wanted) const;
  static std::string described(const Token& token);
  static std::string described(TokenType type);

  // expressions, from loose to tight
  ExpressionPtr expression(bool with_conditional = true);
  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr filters(ExpressionPtr input);
  ExpressionPtr tuple(bool explicit_parentheses = false, bool with_conditional = true,
                      std::initializer_list<std::string_view> end_names = {});
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr bracket(ExpressionPtr object);
  ExpressionPtr call(ExpressionPtr callee);
  // started: the | was skipped already. With a null input: the chain of a block.
  ExpressionPtr filter_chain(ExpressionPtr input, bool started);
  ExpressionPtr test(ExpressionPtr input);
  Operands operands();
  ExpressionPtr constant_name(const Token& token);
  bool tuple_ends(std::initializer_list<std::string_view> end_names) const;

  // statements
  Body statements(std::initializer_list<std::string_view> end_tags, std::string_view opened_by, Place opened_at);
  Body block(std::initializer_list<std::string_view> end_tags, std::string_view opened_by, Place opened_at);
  Statement statement();
  Statement if_statement(Place place);
  Statement for_statement(Place place);
  Statement set_statement(Place place);
  Statement with_statement(Place place);
  Statement macro_statement(Place place);
  Statement call_statement(Place place);
  Statement filter_statement(Place place);
  Statement generation_statement(Place place);
  Statement print_statement(Place place);
  Statement jump_statement(Place place, bool leaves);
  void signature(MacroDefinition& macro);
  Body function_body(MacroDefinition& macro, std::string_view end_tag, std::string_view opened_by, Place place);
  Target target(bool with_namespace, std::initializer_list<std::string_view> end_names = {});
  Target single_target(bool with_namespace);

  Symbol symbol(const std::string& name);
  // Longer chains of operators would make a tree too deep to walk.
  void count_link(int& links) const;
  template <typename Node>
  ExpressionPtr make(Place place, Node node) const {
    return std::make_unique<const Expression>(Expression{place, std::move(node)});
  }

  class Level {
   public:
    explicit Level(Parser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  const std::vector<Token> tokens_;
  const std::string& place_;
  size_t at_ = 0;
  int level_ = 0;
  int conditions_ = 0;  // enclosing ifs: unknown filters wait until they run
  int loops_ = 0;       // enclosing loops of the same function
  std::vector<MacroDefinition*> macros_;
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<std::string> names_;
  std::set<std::string> constructs_;
};

}  // namespace pacer::text::jinja
