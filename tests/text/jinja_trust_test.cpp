// SPDX-License-Identifier: Apache-2.0
// Origins: every way from a variable to the output keeps the user's text apart from the template's.
#include <string>

#include <gtest/gtest.h>

#include "text/jinja.h"

namespace switchyard::text {
namespace {

/// The rendered text with the user's parts in brackets; `x` is "Ab,cD ", `d` holds it under "k".
std::string marked(std::string_view source) {
  const Template made = Template::compile(source, "t").value();
  const Json json = parse_json(R"({"x": "Ab,cD ", "d": {"k": "Ab,cD "}, "n": 7})", "json").value();
  const auto segments = made.render_segments(Value::from_json(json).value());
  if (!segments.ok()) return segments.error().message;
  std::string text;
  for (const Segment& segment : *segments)
    text += segment.from_template ? segment.text : "[" + segment.text + "]";
  return text;
}

TEST(JinjaTrust, TextAndLiteralsAreTheTemplates) {
  EXPECT_EQ(marked("<a>{{ '<b>' }}{{ 1 + 2 }}{{ none }}"), "<a><b>3None");
  EXPECT_EQ(marked("<{{ n }}>"), "<7>");  // a number spells nothing
}

TEST(JinjaTrust, VariablesAreTheUsers) {
  EXPECT_EQ(marked("<{{ x }}>"), "<[Ab,cD ]>");
  EXPECT_EQ(marked("<{{ d.k }}>"), "<[Ab,cD ]>");
  EXPECT_EQ(marked("{% for k in d %}{{ k }}{% endfor %}"), "[k]");
}

TEST(JinjaTrust, OperatorsKeepOrigins) {
  EXPECT_EQ(marked("{{ '<' + x + '>' }}"), "<[Ab,cD ]>");
  EXPECT_EQ(marked("{{ '<' ~ x ~ '>' }}"), "<[Ab,cD ]>");
  EXPECT_EQ(marked("{{ ('<' ~ x)[0:3] }}"), "<[Ab]");
  EXPECT_EQ(marked("{{ ('<' ~ x)[::-1] }}"), "[ Dc,bA]<");
  EXPECT_EQ(marked("{{ ('<' ~ x)[1] }}"), "[A]");
  EXPECT_EQ(marked("{{ ('<' ~ x[:1]) * 2 }}"), "<[A]<[A]");
  EXPECT_EQ(marked("{{ '<%s>' % x }}"), "<[Ab,cD ]>");
}

TEST(JinjaTrust, FiltersKeepOrigins) {
  EXPECT_EQ(marked("{{ ('<a' ~ x)|upper }}"), "<A[AB,CD ]");
  EXPECT_EQ(marked("{{ x|trim }}"), "[Ab,cD]");
  EXPECT_EQ(marked("{{ x|title }}{{ x|capitalize }}{{ x|lower }}"), "[Ab,cd Ab,cd ab,cd ]");
  EXPECT_EQ(marked("{{ x|replace(',', '<s>') }}"), "[Ab]<s>[cD ]");
  EXPECT_EQ(marked("{{ '<a>'|replace('a', x) }}"), "<[Ab,cD ]>");
  EXPECT_EQ(marked("{{ [x, x]|join('<s>') }}"), "[Ab,cD ]<s>[Ab,cD ]");
  EXPECT_EQ(marked("{{ x|tojson }}"), "\"[Ab,cD ]\"");
  EXPECT_EQ(marked("{{ d|tojson }}"), "{\"[k]\": \"[Ab,cD ]\"}");
  EXPECT_EQ(marked("{{ [x] }}"), "['[Ab,cD ]']");
  EXPECT_EQ(marked("{{ x|string|safe }}"), "[Ab,cD ]");
  EXPECT_EQ(marked("{{ ('<' ~ x)|e }}"), "&lt;[Ab,cD ]");
  EXPECT_EQ(marked("{{ x|list|join|reverse }}"), "[ Dc,bA]");
  EXPECT_EQ(marked("{{ ('a\n' ~ x)|indent(2) }}"), "a\n  [Ab,cD ]");
  EXPECT_EQ(marked("{{ [x]|map('upper')|first }}{{ [x, 'a']|sort|last }}"), "[AB,CD Ab,cD ]");
}

TEST(JinjaTrust, MethodsKeepOrigins) {
  EXPECT_EQ(marked("{{ x.split(',')[0] }}{{ x.split()[0] }}"), "[AbAb,cD]");
  EXPECT_EQ(marked("{{ x.strip() }}{{ x.rstrip('D ') }}"), "[Ab,cDAb,c]");
  EXPECT_EQ(marked("{{ x.replace('A', '<') }}"), "<[b,cD ]");
  EXPECT_EQ(marked("{{ '<{}>'.format(x) }}"), "<[Ab,cD ]>");
  EXPECT_EQ(marked("{{ '<'.join([x, x]) }}"), "[Ab,cD ]<[Ab,cD ]");
  EXPECT_EQ(marked("{{ x.partition(',')[2] }}{{ x.removeprefix('A') }}"), "[cD b,cD ]");
  EXPECT_EQ(marked("{% for k, v in d.items() %}{{ k }}<{{ v }}{% endfor %}"), "[k]<[Ab,cD ]");
}

TEST(JinjaTrust, CapturesKeepOrigins) {
  EXPECT_EQ(marked("{% set y %}<{{ x }}>{% endset %}{{ y }}"), "<[Ab,cD ]>");
  EXPECT_EQ(marked("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(x)|upper }}"), "<[AB,CD ]>");
  EXPECT_EQ(marked("{% filter lower %}<{{ x }}>{% endfilter %}"), "<[ab,cd ]>");
  EXPECT_EQ(
      marked("{% macro f() %}({{ caller() }}){% endmacro %}{% call f() %}{{ x }}{% endcall %}"),
      "([Ab,cD ])");
}

TEST(JinjaTrust, EqualTextsOfTwoOriginsStayApart) {
  const Template made = Template::compile("{{ '<|end|>' if x == '<|end|>' }}{{ x }}", "t").value();
  jinja::Dict variables;
  ASSERT_TRUE(variables.set(Value::string("x", true), Value::string("<|end|>", false)).ok());
  const auto segments = made.render_segments(Value::dict(std::move(variables))).value();
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_TRUE(segments[0].from_template);
  EXPECT_FALSE(segments[1].from_template);
}

}  // namespace
}  // namespace switchyard::text
