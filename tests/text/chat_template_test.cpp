#include "pacer/text/chat_template.h"

#include <gmock/gmock.h>

#include <thread>

#include "pacer/base/error.h"

namespace pacer::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

OrderedJson hello() { return OrderedJson::parse(R"([{"role": "user", "content": "hi"}])"); }

std::string render(const std::string& source, const RenderOptions& options = {}) {
  return ChatTemplate::parse(source, "t")->render(hello(), options).text;
}

Error failure(const std::string& source, const RenderOptions& options = {}) {
  try {
    const std::string text = render(source, options);
    ADD_FAILURE() << source << " rendered: " << text;
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::bug, "");
}

TEST(ChatTemplate, ErrorsNameLineAndColumn) {
  EXPECT_THAT(failure("a\n  {{ messages[0].nope.x }}").what(),
              StartsWith("t:2:22: 'dict object' has no attribute 'nope'"));
  EXPECT_THAT(failure("é\n{% if x %}\n{{ 'é' ~ }}{% endif %}").what(), StartsWith("t:3:10: unexpected"));
  EXPECT_THAT(failure("{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n{{ m() }}").what(),
              StartsWith("t:2:6: unsupported"));
  EXPECT_EQ(failure("{{ x.y }}").kind(), ErrorKind::data);
  EXPECT_EQ(failure("{% nope %}").kind(), ErrorKind::format);
}

TEST(ChatTemplate, RaiseExceptionKeepsItsMessageAndTheHintSaysWhere) {
  const Error error = failure("\n {{ raise_exception('Only user and assistant roles!') }}");
  EXPECT_STREQ(error.what(), "Only user and assistant roles!");
  EXPECT_THAT(error.hint(), HasSubstr("t:2:"));
}

TEST(ChatTemplate, EndlessTemplatesAreStopped) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}", "steps"},
      {"{{ 'x' * 999999999999 }}", "bytes"},
      {"{{ '' * 999999999999999 }}{{ 'x' * 999999999999999 }}", "bytes"},
      {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "bytes"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "bytes"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deeper"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}", "deeper"},
      {"{{ range(100001) | length }}", "Range too big"},
      {"{{ range(0, 9223372036854775807, 2) | length }}", "Range too big"},
      {"{{ 'a'.ljust(99999999999) }}", "bytes"},
      {"{{ 'a' | center(9223372036854775807) }}", "bytes"},
      {"{{ [[1]] | tojson(indent=99999999999) }}", "bytes"},
      {"{{ [1] | batch(9223372036854775807, 0) | list }}", "steps"},
      {"{{ [1] | slice(9223372036854775807) | list }}", "steps"},
      {"{{ 'aaaa' | replace('', 'x' * 99999999) }}", "bytes"},
      {"{{ '%*d' % (99999999999, 1) }}", "digits"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
  };
  for (const auto& [source, what] : cases) {
    EXPECT_THAT(failure(source).what(), HasSubstr(what)) << source;
  }
}

TEST(ChatTemplate, LimitsCanBeSet) {
  RenderOptions options;
  options.limits.steps = 10;
  EXPECT_THAT(failure("{% for i in range(20) %}{{ i }}{% endfor %}", options).what(), HasSubstr("10 steps"));
  options = {};
  options.limits.bytes = 100;
  options.limits.bytes_per_input = 0;
  EXPECT_THAT(failure("{{ 'x' * 101 }}", options).what(), HasSubstr("100 bytes"));
}

TEST(ChatTemplate, LongConversationsRaiseTheLimitOfBytes) {
  const std::string copies = "{% for m in messages %}{{ (m.content + 'x') | upper | trim }}{% endfor %}";
  RenderOptions options;
  options.limits.bytes = 1000;
  const OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", std::string(20000, 'a')}}});
  const auto parsed = ChatTemplate::parse(copies, "template");
  EXPECT_EQ(parsed->render(messages, options).text.size(), 20001u);
  options.limits.bytes_per_input = 0;
  EXPECT_THROW(parsed->render(messages, options), Error);
}

TEST(ChatTemplate, DeepSourcesAreRefusedInsteadOfFillingTheStack) {
  const auto repeated = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  EXPECT_EQ(failure("{{ " + repeated("(", 100000)).kind(), ErrorKind::format);
  EXPECT_EQ(failure("{{ " + repeated("[", 100000)).kind(), ErrorKind::format);
  EXPECT_EQ(failure("{{ " + repeated("not ", 100000)).kind(), ErrorKind::format);
  EXPECT_EQ(failure("{{ " + repeated("-", 100000)).kind(), ErrorKind::format);
  EXPECT_EQ(failure(repeated("{% if x %}", 100000)).kind(), ErrorKind::format);
  EXPECT_EQ(failure("{{ 1" + repeated(" + 1", 100000) + " }}").kind(), ErrorKind::format);
  EXPECT_EQ(failure("{{ 'a'" + repeated(" | upper", 100000) + " }}").kind(), ErrorKind::format);
  EXPECT_EQ(failure("{{ x" + repeated(".x", 100000) + " }}").kind(), ErrorKind::format);
  EXPECT_EQ(render("{{ 1" + repeated(" + 1", 100) + " }}"), "101");
}

TEST(ChatTemplate, NothingGivenCanBeChangedOrEscapedFrom) {
  EXPECT_THAT(failure("{{ messages.append(1) }}").what(), HasSubstr("unsafe"));
  EXPECT_THAT(failure("{{ messages[0].update({'role': 'x'}) }}").what(), HasSubstr("unsafe"));
  EXPECT_THAT(failure("{{ ''.__class__.__mro__ }}").what(), HasSubstr("unsafe"));
  EXPECT_THAT(failure("{{ ''['__class__']['__mro__'] }}").what(), HasSubstr("unsafe"));
  EXPECT_THAT(failure("{{ ('' | attr('__class__')).x }}").what(), HasSubstr("unsafe"));
  EXPECT_THAT(failure("{{ '{0.__class__.__mro__}'.format('') }}").what(), HasSubstr("unsafe"));
  EXPECT_THAT(failure("{% set messages.x = 1 %}").what(), HasSubstr("namespace"));
  EXPECT_THAT(failure("{% include 'x' %}").what(), HasSubstr("not supported"));
  EXPECT_THAT(failure("{{ 1 | random }}").what(), HasSubstr("No filter named 'random'"));
}

TEST(ChatTemplate, ANamespaceMayHoldItself) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}"), "True");
  EXPECT_THAT(failure("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}").what(), HasSubstr("deeper"));
}

TEST(ChatTemplate, UnknownFiltersInsideAConditionFailOnlyWhenTheyRun) {
  EXPECT_EQ(render("{% if false %}{{ 1 | nope }}{% endif %}ok"), "ok");
  EXPECT_EQ(failure("{% if true %}{{ 1 | nope }}{% endif %}").kind(), ErrorKind::data);
  EXPECT_EQ(failure("{{ 1 | nope }}").kind(), ErrorKind::format);
}

TEST(ChatTemplate, MacrosSeeTheirPlaceOfDefinition) {
  EXPECT_EQ(render("{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}"
                   "{% for x in [7] %}{{ m() }}{{ x }}{% endfor %}"),
            "27");
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in [1, 2, 3] %}{% macro m() %}{{ i }}{% endmacro %}"
                   "{% if i == 2 %}{% set ns.m = m %}{% endif %}{% endfor %}{{ ns.m() }}"),
            "2");
}

TEST(ChatTemplate, GenerationSpansAreCodePoints) {
  const Rendered rendered =
      ChatTemplate::parse("é😀{% generation %}ü{{ 'ab' }}{% endgeneration %}x{% generation %}{% endgeneration %}", "t")
          ->render(hello());
  EXPECT_THAT(rendered.generation, ElementsAre(Span{2, 5}, Span{6, 6}));
  EXPECT_FALSE(rendered.generation_unplaced);
  EXPECT_TRUE(ChatTemplate::parse("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", "t")
                  ->render(hello())
                  .generation_unplaced);
}

TEST(ChatTemplate, ReportsWhatATemplateUses) {
  EXPECT_THAT(ChatTemplate::parse("{% set ns = namespace(a=1) %}{% for m in messages if m is defined %}{{ m | tojson }}"
                                  "{% break %}{% endfor %}{{ raise_exception('x') if false }}",
                                  "t")
                  ->constructs(),
              ElementsAre("break", "defined", "for", "namespace", "raise_exception", "set", "tojson"));
}

TEST(ChatTemplate, GivenVariablesWinOverFunctionsAndAbsentListsAreNone) {
  RenderOptions options;
  options.variables = {{"range", "mine"}, {"bos_token", "<s>"}};
  EXPECT_EQ(render("{{ range }}{{ bos_token }}{{ tools is none }}{{ documents is none }}", options), "mine<s>TrueTrue");
  options.tools = {{{"name", "f"}}};
  EXPECT_EQ(render("{{ tools[0].name }}", options), "f");
}

TEST(ChatTemplate, IntegersKeepAllTheirDigits) {
  RenderOptions options;
  options.variables["n"] = 9007199254740993;
  EXPECT_EQ(render("{{ n }} {{ n | tojson }} {{ n == 9007199254740992.0 }}", options),
            "9007199254740993 9007199254740993 False");
  options.variables["n"] = 18446744073709551615u;
  EXPECT_THAT(failure("{{ n }}", options).what(), HasSubstr("64 bits"));
}

TEST(ChatTemplate, RejectsTextThatIsNotUtf8) { EXPECT_EQ(failure("a\xff").kind(), ErrorKind::format); }

TEST(ChatTemplate, RendersInSeveralThreadsAtOnce) {
  const auto shared = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.index %}{{ m.content | upper }}"
      "{% endfor %}{{ ns.n }}",
      "t");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) wrong[t] += shared->render(hello()).text != "HI1" ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace pacer::text
