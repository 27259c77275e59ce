// SPDX-License-Identifier: Apache-2.0
// Templates that are broken, hostile or greedy: each is refused by name and line, within its budget.
#include <string>

#include <gtest/gtest.h>

#include "text/jinja.h"

namespace switchyard::text {
namespace {

Result<std::string> render(std::string_view source, const RenderOptions& options = {}) {
  SWITCHYARD_ASSIGN(const Template made, Template::compile(source, "t"));
  return made.render(Value::dict({}), options);
}

std::string compile_error(std::string_view source) {
  const auto made = Template::compile(source, "t");
  if (made.ok()) return "compiled";
  EXPECT_EQ(made.error().code, Code::bad_request);
  return made.error().message;
}

std::string render_error(std::string_view source, const RenderOptions& options = {}) {
  EXPECT_TRUE(Template::compile(source, "t").ok()) << source;
  const auto text = render(source, options);
  if (text.ok()) return "rendered " + *text;
  EXPECT_EQ(text.error().code, Code::bad_request);
  return text.error().message;
}

std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

TEST(JinjaMalformed, SyntaxErrorsNameTheLine) {
  EXPECT_EQ(compile_error("a\n\n{{ 1 + }}"), "t: line 3: unexpected '}}', expected an expression");
  EXPECT_EQ(compile_error("\n{% if x %}\n"),
            "t: line 2: unexpected end of the template: expected 'endif'");
  EXPECT_EQ(compile_error("{{ 'abc }}"), "t: line 1: a string that starts with ' has no end");
  EXPECT_EQ(compile_error("{{ [1, 2 }}"), "t: line 1: unexpected '}', expected ']'");
  EXPECT_EQ(compile_error("\n{# no end"),
            "t: line 2: the comment that starts here has no end '#}'");
  EXPECT_EQ(compile_error("{% raw %}{{ x }}"),
            "t: line 1: the block 'raw' that starts here has no 'endraw'");
  EXPECT_EQ(compile_error("{{ 1 ? 2 }}"), "t: line 1: unexpected character '?' inside a tag");
}

TEST(JinjaMalformed, UnknownTagFilterTestFunction) {
  EXPECT_EQ(compile_error("{% frob %}"), "t: line 1: there is no tag named 'frob'");
  EXPECT_EQ(compile_error("{% include 'x' %}"), "t: line 1: there is no tag named 'include'");
  EXPECT_EQ(compile_error("{{ 1|frob }}"), "t: line 1: there is no filter named 'frob'");
  EXPECT_EQ(compile_error("{{ 1 is frob }}"), "t: line 1: there is no test named 'frob'");
  EXPECT_EQ(render_error("{{ frob(1) }}"), "t: line 1: 'frob' is undefined");
  EXPECT_EQ(render_error("{% if true %}{{ 1|frob }}{% endif %}"),
            "t: line 1: there is no filter named 'frob'");
}

TEST(JinjaMalformed, InvalidUtf8) {
  EXPECT_EQ(compile_error("ab\xFF"), "t: the template is not valid UTF-8 at byte 2");
  const auto made = Template::compile("{{ x }}", "t").value();
  jinja::Dict variables;
  ASSERT_TRUE(variables.set(Value::string("x", true), Value::string("\xC3", false)).ok());
  EXPECT_FALSE(made.render(Value::dict(std::move(variables))).ok());
}

TEST(JinjaMalformed, LoneSurrogateEscape) {
  EXPECT_NE(compile_error(R"({{ '\ud83d' }})").find("U+D83D, which is no character"),
            std::string::npos);
}

TEST(JinjaMalformed, AttributeWalksLeadNowhere) {
  EXPECT_EQ(render("[{{ ''.__class__ }}]").value(), "[]");
  EXPECT_NE(render_error("{{ ''.__class__.__mro__ }}").find("unsafe"), std::string::npos);
  EXPECT_NE(render_error("{{ ''['__class__']['__mro__'] }}").find("unsafe"), std::string::npos);
  EXPECT_NE(render_error("{{ range.__globals__ }}").find("not supported"), std::string::npos);
  EXPECT_NE(render_error("{{ [].append(1) }}").find("unsafe"), std::string::npos);
}

TEST(JinjaMalformed, RangeOfABillion) {
  EXPECT_EQ(render_error("{{ range(1000000000) }}"),
            "t: line 1: range of 1000000000 elements: at most 100000 are allowed");
  EXPECT_NE(render_error("{{ range(-9223372036854775807, 9223372036854775807) }}").find("at most"),
            std::string::npos);
  EXPECT_EQ(render("{{ range(9223372036854775800, 9223372036854775807, 5)|list }}").value(),
            "[9223372036854775800, 9223372036854775805]");
}

TEST(JinjaMalformed, NestedLoopsEndWithTheBudget) {
  EXPECT_EQ(render_error(
                "{% for a in range(10000) %}\n{% for b in range(10000) %}{% endfor %}{% endfor %}"),
            "t: line 2: the template does more work than its budget allows");
  RenderOptions small;
  small.limits.work = 20;
  EXPECT_EQ(render("{{ 1 + 1 }}", small).value(), "2");
  EXPECT_NE(render_error("{% for i in range(10) %}{{ i }}{% endfor %}", small).find("budget"),
            std::string::npos);
}

TEST(JinjaMalformed, StringMultiplication) {
  EXPECT_EQ(render_error("{{ 'x' * 1000000000000 }}"),
            "t: line 1: a text becomes longer than 4194304 bytes");
  EXPECT_EQ(render_error("{{ [0] * 1000000000000 }}"),
            "t: line 1: a list becomes longer than 100000 elements");
  EXPECT_EQ(render("{{ '' * 1000 }}").value(), "");
  EXPECT_NE(render_error("{% set ns = namespace(s='x') %}{% for i in range(64) %}"
                         "{% set ns.s = ns.s + ns.s %}{% endfor %}")
                .find("longer than"),
            std::string::npos);
}

TEST(JinjaMalformed, OutputOverFourMebibytes) {
  const std::string source = "{% for i in range(70) %}{{ 'x' * 65536 }}{% endfor %}";
  EXPECT_EQ(render_error(source), "t: line 1: a text becomes longer than 4194304 bytes");
}

TEST(JinjaMalformed, MacroRecursion) {
  EXPECT_EQ(render_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
            "t: line 1: maximum recursion depth exceeded");
}

TEST(JinjaMalformed, DeepNesting) {
  EXPECT_NE(
      compile_error("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}").find("levels"),
      std::string::npos);
  EXPECT_NE(compile_error("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}").find("levels"),
            std::string::npos);
  EXPECT_NE(compile_error("{{ " + repeated("-", 5000) + "1 }}").find("signs"), std::string::npos);
  EXPECT_NE(compile_error("{{ " + repeated("not ", 5000) + "1 }}").find("levels"),
            std::string::npos);
  EXPECT_NE(compile_error("{{ 1" + repeated(" + 1", 5000) + " }}").find("levels"),
            std::string::npos);
  EXPECT_NE(compile_error("{{ 1" + repeated("|abs", 5000) + " }}").find("levels"),
            std::string::npos);
  EXPECT_NE(compile_error("{{ x" + repeated(".x", 5000) + " }}").find("levels"), std::string::npos);
  EXPECT_NE(
      compile_error(repeated("{% if x %}", 5000) + repeated("{% endif %}", 5000)).find("levels"),
      std::string::npos);
  EXPECT_EQ(render("{{ 1" + repeated(" + 1", 100) + " }}").value(), "101");
}

TEST(JinjaMalformed, DeepValues) {
  EXPECT_NE(render_error("{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
                         "{% set ns.l = [ns.l] %}{% endfor %}")
                .find("levels deep"),
            std::string::npos);
}

TEST(JinjaMalformed, SharedValuesDoNotMultiplyWork) {
  const std::string doubled =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  RenderOptions options;
  options.limits.work = 100'000;
  for (const char* use :
       {"{{ ns.a == ns.b }}", "{{ ns.a }}", "{{ ns.a|tojson }}", "{{ [ns.a, ns.b]|sort }}"})
    EXPECT_NE(render_error(doubled + use, options).find("budget"), std::string::npos) << use;
}

TEST(JinjaMalformed, CirclesAreFreed) {
  // A leak here is found by the address sanitizer.
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.l = [ns] %}"
             "{% macro f() %}{% endmacro %}{% for i in [1] %}{% macro g() %}{{ f() }}{% endmacro %}"
             "{% set ns.g = g %}{% set ns.loop = loop %}{% endfor %}ok")
          .value(),
      "ok");
}

TEST(JinjaMalformed, IntegersNeverWrapAround) {
  EXPECT_NE(render_error("{{ 9223372036854775807 + 1 }}").find("64 bits"), std::string::npos);
  EXPECT_NE(render_error("{{ 2 ** 63 }}").find("64 bits"), std::string::npos);
  EXPECT_NE(render_error("{{ (-9223372036854775807 - 1) // -1 }}").find("64 bits"),
            std::string::npos);
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}").value(), "0");
  EXPECT_NE(compile_error("{{ 9223372036854775808 }}").find("2^63 - 1"), std::string::npos);
  EXPECT_NE(render_error("{{ 1 // 0 }}").find("division by zero"), std::string::npos);
}

TEST(JinjaMalformed, RaiseExceptionIsTheWholeMessage) {
  EXPECT_EQ(render_error("\n{{ raise_exception('Roles must alternate') }}"),
            "Roles must alternate");
}

TEST(JinjaMalformed, ErrorsNameTheirLine) {
  EXPECT_EQ(render_error("{% if true %}\n{{ x.y.z }}\n{% endif %}"), "t: line 2: 'x' is undefined");
  EXPECT_EQ(render_error("{% macro f() %}\n\n{{ 1 + 'a' }}{% endmacro %}{{ f() }}"),
            "t: line 3: unsupported operand types for +: 'int' and 'str'");
}

TEST(JinjaMalformed, StrftimeRefusesStrangeFormats) {
  EXPECT_NE(render_error("{{ strftime_now('%Q') }}").find("not supported"), std::string::npos);
  EXPECT_NE(render_error("{{ strftime_now('%') }}").find("not supported"), std::string::npos);
  EXPECT_NE(render_error("{{ strftime_now('a' * 2000) }}").find("longer than"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::text
