// SPDX-License-Identifier: Apache-2.0
// Every line of tests/golden/templates: the same text as the reference, or an error where it has one.
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "text/jinja.h"

namespace switchyard::text {
namespace {

const std::string kFolder = SWITCHYARD_SOURCE_DIR "/tests/golden/templates/";

struct TemplateCase {
  std::string name, source;
  Json variables;
  std::optional<std::tm> now;
  bool extra = false;
  std::optional<std::string> text;
  std::string error, message;
};

std::string text_of(const Json& json, std::string_view key) {
  const Json* found = json.find(key);
  return found ? found->as_string() : std::string();
}

std::tm read_time(const std::string& text) {
  std::tm time{};
  EXPECT_NE(::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time), nullptr) << text;
  return time;
}

TemplateCase read_case(const Json& json) {
  TemplateCase read;
  read.name = text_of(json, "name");
  if (const Json* file = json.find("template_file"))
    read.source = read_text_file(kFolder + file->as_string(), 1 << 20).value();
  else
    read.source = text_of(json, "template");
  read.variables = *json.find("variables");
  if (json.find("now")) read.now = read_time(text_of(json, "now"));
  read.extra = json.find("extra") != nullptr;
  if (json.find("text")) read.text = text_of(json, "text");
  read.error = text_of(json, "error");
  read.message = text_of(json, "message");
  return read;
}

std::vector<TemplateCase> read_cases(const std::string& file) {
  std::istringstream lines(read_text_file(kFolder + file, 1 << 24).value());
  std::vector<TemplateCase> cases;
  for (std::string line; std::getline(lines, line);)
    cases.push_back(read_case(parse_json(line, file).value()));
  return cases;
}

Result<std::string> render(const TemplateCase& one, bool* compiled) {
  SWITCHYARD_ASSIGN(const Template made, Template::compile(one.source, one.name));
  *compiled = true;
  SWITCHYARD_ASSIGN(const Value variables, Value::from_json(one.variables));
  return made.render(variables, RenderOptions{.limits = {}, .now = one.now});
}

/// Correct Jinja that this engine refuses; a case may leave this list, none may come.
const std::set<std::string> kRefused = {
    "expression/cycler",       "expression/joiner",     "expression/string_percent",
    "library/batch_and_slice", "library/center",        "library/format_filter",
    "library/groupby",         "library/attr",          "library/is_methods",
    "library/method_case",     "library/method_format", "library/method_of_number",
    "library/prefix_methods",  "library/striptags",     "library/test_filter_exists",
    "library/truncate",        "library/urlencode",     "library/wordcount",
};

void check(const TemplateCase& one) {
  bool compiled = false;
  const auto rendered = render(one, &compiled);
  if (rendered.ok()) {
    ASSERT_TRUE(one.text) << "expected an error: " << one.message << "\nfound: " << *rendered;
    EXPECT_EQ(*rendered, *one.text);
    EXPECT_EQ(kRefused.count(one.name), 0u) << "is no longer refused";
    return;
  }
  const Error& error = rendered.error();
  EXPECT_EQ(error.code, Code::bad_request);
  if (one.text) {
    EXPECT_TRUE(one.extra && kRefused.count(one.name)) << error.message << "\n" << one.source;
    return;
  }
  if (one.error == "syntax") {
    EXPECT_FALSE(compiled) << error.message;
  }
  if (one.error == "raised") {
    EXPECT_EQ(error.message, one.message);
  } else {
    EXPECT_TRUE(error.message.starts_with(one.name + ": line ")) << error.message;
  }
}

void check_file(const std::string& file, size_t at_least) {
  const std::vector<TemplateCase> cases = read_cases(file);
  EXPECT_GE(cases.size(), at_least);
  for (const TemplateCase& one : cases) {
    SCOPED_TRACE(one.name);
    check(one);
  }
}

TEST(JinjaGolden, Features) { check_file("features.jsonl", 300); }
TEST(JinjaGolden, Chats) { check_file("chats.jsonl", 200); }

std::string text_of_template(std::string_view source) {
  return Template::compile(source, "t").value().render(Value::dict({})).value();
}

// Not in the goldens: found by comparing random templates with the reference.

TEST(JinjaGolden, LoopsWhoseFirstPassIsCutShortRunTheirElse) {
  EXPECT_EQ(text_of_template("{% for x in [1, 2] %}{% break %}{% else %}else{% endfor %}"), "else");
  EXPECT_EQ(text_of_template("{% for x in [1, 2] %}{% continue %}{% else %}else{% endfor %}"),
            "else");
  EXPECT_EQ(text_of_template("{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}a"
                             "{% else %}else{% endfor %}"),
            "a");
}

TEST(JinjaGolden, FalseInputsOfMapAndSelectAreEmpty) {
  EXPECT_EQ(text_of_template("{{ none|selectattr('a')|list }}{{ 0|map('upper')|list }}"), "[][]");
}

TEST(JinjaGolden, TextsMarkedSafeShowItInLists) {
  EXPECT_EQ(text_of_template("{{ ['a'|safe, 'b'] }}"), "[Markup('a'), 'b']");
}

}  // namespace
}  // namespace switchyard::text
