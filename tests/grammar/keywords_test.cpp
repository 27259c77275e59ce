// SPDX-License-Identifier: Apache-2.0
// Every keyword: texts that it accepts and texts that it refuses; every way to be refused.
#include <vector>

#include <gtest/gtest.h>

#include "grammar/accepts.h"

namespace switchyard::grammar {
namespace {

struct Case {
  const char* schema;
  std::vector<const char*> yes, no;
};

const Case kCases[] = {
    {R"({"type": "null"})", {"null"}, {"", "nul", "nulll", "NULL"}},
    {R"({"type": "boolean"})", {"true", "false"}, {"True", "0", "truefalse"}},
    {R"({"type": "integer"})",
     {"0", "-1", "12", "999999999999999999"},
     {"", "-", "-0", "01", "1.0", "1e2", "1000000000000000000", "+1"}},
    {R"({"type": "number"})",
     {"0", "-0.5", "12.25", "1e9", "1E-7", "3.0e+10"},
     {".5", "1.", "01.5", "1e", "NaN", "1e999", "0x1", "Infinity"}},
    {R"({"type": "string"})",
     {R"("")", R"("a b")", R"("\"\\\/\b\n")", R"("\u00e9")", R"("\ud83d\ude00")",
      "\"\u00e9\u4f60\""},
     {"\"",
      R"(")"
      "\n"
      R"(")",
      R"("\x")", R"("\ud83d")", R"("\ude00")", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
      R"("a" )"}},
    {R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {R"("ab")", "\"\u00e9\u4f60\"", R"("\n\n\n")", R"("\ud83d\ude00a")"},
     {R"("a")", R"("abcd")", R"("\ud83d\ude00")"}},
    {R"({"type": "string", "minLength": 1})", {R"("a")", R"("abcdef")"}, {R"("")"}},
    {R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")"}},
    {R"({"type": "string", "pattern": "^a+$"})", {R"("a")", R"("aa")"}, {R"("")", R"("ab")"}},
    {R"({"type": "string", "format": "date"})",
     {R"("2026-11-30")"},
     {R"("2026-13-01")", R"("26-11-30")", R"("2026-11-30x")"}},
    {R"({"type": "string", "format": "date-time"})",
     {R"("2026-11-30T01:02:03Z")", R"("2026-11-30T01:02:03.5+01:00")"},
     {R"("2026-11-30")"}},
    {R"({"type": "string", "format": "time"})", {R"("23:59:59Z")"}, {R"("24:00:00Z")"}},
    {R"({"type": "string", "format": "uuid"})",
     {R"("123e4567-e89b-12d3-a456-426614174000")"},
     {R"("123e4567e89b12d3a456426614174000")"}},
    {R"({"type": "string", "format": "ipv4"})",
     {R"("127.0.0.1")", R"("255.255.255.255")"},
     {R"("256.0.0.1")", R"("1.2.3")"}},
    {R"({"type": "integer", "minimum": 3, "maximum": 12})",
     {"3", "9", "10", "12"},
     {"2", "13", "-3", "1", "123"}},
    {R"({"type": "integer", "exclusiveMinimum": -11, "exclusiveMaximum": 10})",
     {"-10", "-1", "0", "9"},
     {"-11", "10", "-0", "-12"}},
    {R"({"type": "integer", "minimum": 1.5, "maximum": 1e30})", {"2", "999"}, {"1", "0", "-2"}},
    {R"({"type": "integer", "minimum": 98, "maximum": 1234})",
     {"98", "99", "100", "999", "1000", "1234"},
     {"97", "1235", "9", "2000"}},
    {R"({"enum": ["a", 1, null, [1, 2], {"x": true}, 2.5]})",
     {R"("a")", "1", "null", "[1,2]", R"({"x":true})", "2.5"},
     {"a", "2", "[1]"}},
    {R"({"type": "string", "enum": ["a", 1, "\n"]})", {R"("a")", R"("\n")"}, {"1"}},
    {R"({"const": "x"})", {R"("x")"}, {R"("y")", R"("\u0078")"}},
    {R"({"const": "x", "enum": ["x", "y"]})", {R"("x")"}, {R"("y")"}},
    {R"({"type": ["string", "null"], "maxLength": 1})", {"null", R"("a")"}, {"1", R"("ab")"}},
    {R"({"type": "array", "items": {"type": "integer"}})",
     {"[]", "[1]", "[1,2]", "[1, 2]"},
     {"[", "[,]", "[1,]", "[1,  2]", "[ 1]", "[1 ]", "[\"a\"]", "[1]]"}},
    {R"({"items": {"const": 1}, "minItems": 2, "maxItems": 3})",
     {"[1,1]", "[1, 1, 1]"},
     {"[]", "[1]", "[1,1,1,1]"}},
    {R"({"items": {"const": 1}, "minItems": 2})", {"[1,1]", "[1,1,1,1,1]"}, {"[]", "[1]"}},
    {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
    {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}})",
     {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
     {"[2]", "[1,3]", "[1,2,2]"}},
    {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": false, "minItems": 1})",
     {"[1]", "[1,2]"},
     {"[]", "[1,2,3]"}},
    {R"({"type": "object"})",
     {"{}", R"({"a":1})", R"({"a": {"b": [1, "x"]}, "": null})"},
     {"{", R"({a:1})", R"({"a"})", R"({"a":1,})", R"({ "a":1})", R"({"a" :1})", "[]"}},
    {R"({"properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]})",
     {R"({"b":null})", R"({"a": 1, "b": null})"},
     {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,"c":1})",
      R"({"a":1,"a":1,"b":null})"}},
    {R"({"properties": {"a": {}, "b": {}, "c": {}}})",
     {"{}", R"({"a":1})", R"({"c":1})", R"({"a":1,"c":[]})", R"({"b":{},"c":""})"},
     {R"({"c":1,"b":1})", R"({,"a":1})", R"({"d":1})"}},
    {R"({"properties": {"a": {"const": 1}}, "additionalProperties": {"const": 2}})",
     {"{}", R"({"a":1})", R"({"a":1,"b":2})", R"({"ab":2, "":2})", R"({"\n":2})"},
     {R"({"a":2})", R"({"b":2,"a":2})", R"({"\u0061":2})", R"({"b":1})"}},
    {R"({"properties": {"a": {"const": 1}}, "additionalProperties": false})",
     {R"({"a":1})"},
     {R"({"b":1})"}},
    {R"({"properties": {"a": {"const": 1}}, "additionalProperties": true})",
     {R"({"a":1,"b":[null]})", R"({"b":1})"},
     {R"({"b":1,"a":2})"}},
    {R"({"type": "object", "required": ["x"], "additionalProperties": {"const": 1}})",
     {R"({"x":1})", R"({"x":1,"y":1})"},
     {"{}", R"({"y":1})"}},
    {R"({"properties": {"a\"\n": {"const": 1}}})", {R"({"a\"\n":1})"}, {R"({"a":1})"}},
    {R"({"anyOf": [{"type": "integer"}, {"const": "x"}]})", {"1", R"("x")"}, {"null"}},
    {R"({"oneOf": [{"type": "integer"}, {"const": 1}]})", {"1", "2"}, {"x"}},
    {R"({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}},
         "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, {"properties": {"c": {"const": 2}}}]})",
     {R"({"a":1,"b":1})", R"({"a":1,"c":2})", R"({"a":1})"},
     {R"({"b":1})", R"({"a":1,"b":2})"}},
    {R"({"allOf": [{"properties": {"a": {"type": "number"}}, "required": ["a"]},
                   {"properties": {"a": {"type": "integer", "minimum": 0}, "b": {"const": 1}}}]})",
     {R"({"a":1})", R"({"a":1,"b":1})"},
     {"{}", R"({"a":-1})", R"({"a":0.5})"}},
    {R"({"allOf": [{"$ref": "#/$defs/s"}], "$defs": {"s": {"type": "string", "maxLength": 1}}, "title": "x"})",
     {R"("a")"},
     {R"("ab")"}},
    {R"({"$ref": "#/$defs/a~1b~0", "$defs": {"a/b~": {"const": 1}}})", {"1"}, {"2"}},
    {R"({"$defs": {"list": {"type": "object", "properties": {"v": {"type": "integer"}, "next":
         {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}}, "required": ["v", "next"]}}, "$ref": "#/$defs/list"})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
     {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
    {"true", {"1", "[]", "{}", R"("x")", R"([{"a": [null, true]}])"}, {"", "x", "[1"}},
    {"{}", {"1", "[]"}, {""}},
    {R"({"properties": {"a": false, "b": {}}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
    {R"({"anyOf": [false, {"const": 1}]})", {"1"}, {"2"}},
    {R"({"uniqueItems": false, "type": "array", "items": {"const": 1}})", {"[1,1]"}, {"[2]"}},
};

TEST(Keywords, Accept) {
  for (const Case& one : kCases) {
    const Grammar grammar = compiled(one.schema);
    for (const char* text : one.yes)
      EXPECT_TRUE(accepts(grammar, text)) << one.schema << " " << text;
    for (const char* text : one.no)
      EXPECT_FALSE(accepts(grammar, text)) << one.schema << " " << text;
  }
}

struct Refused {
  const char *schema, *message;  // what the message must hold
};

const Refused kRefused[] = {
    {"{", "schema"},
    {"1", "#: found integer, expected a schema"},
    {R"({"properties": {"a": {"multipleOf": 2}}})", "#/properties/a/multipleOf: this keyword"},
    {R"({"items": {"not": {}}})", "#/items/not"},
    {R"({"anyOf": [{"if": {}}]})", "#/anyOf/0/if"},
    {R"({"type": "array", "uniqueItems": true})", "#/uniqueItems"},
    {R"({"patternProperties": {}})", "#/patternProperties"},
    {R"({"propertyNames": {}})", "#/propertyNames"},
    {R"({"minProperties": 1})", "#/minProperties"},
    {R"({"contains": {}})", "#/contains"},
    {R"({"unevaluatedProperties": false})", "#/unevaluatedProperties"},
    {R"({"properties": {"a": {"$id": "x"}}})", "#/properties/a/$id"},
    {R"({"type": "int"})", "#/type"},
    {R"({"type": []})", "#/type"},
    {R"({"properties": []})", "#/properties: found array, expected an object"},
    {R"({"properties": {"a": 1}})", "#/properties/a: found integer"},
    {R"({"required": ["a"], "properties": {"b": {}}})", "\"a\" is not among properties"},
    {R"({"required": [1]})", "#/required"},
    {R"({"items": [{}]})", "#/items: a list is not supported"},
    {R"({"type": "array", "minItems": 3, "maxItems": 2})", "#/minItems"},
    {R"({"type": "array", "minItems": -1})", "#/minItems: found -1"},
    {R"({"type": "array", "maxItems": 1.5})", "#/maxItems"},
    {R"({"type": "string", "minLength": 3, "maxLength": 2})", "#/minLength"},
    {R"-({"type": "string", "pattern": "(?=a)"})-", "#/pattern"},
    {R"({"type": "string", "pattern": "a", "maxLength": 3})", "#/pattern: together"},
    {R"({"type": "string", "format": "email"})", "#/format: \"email\" is not supported"},
    {R"({"type": "number", "minimum": 0})", "#/minimum: of a number is not supported"},
    {R"({"type": "integer", "minimum": 5, "maximum": 4})", "no whole number"},
    {R"({"type": "integer", "minimum": "5"})", "#/minimum"},
    {R"({"enum": []})", "no value is left"},
    {R"({"type": "string", "enum": [1]})", "no value is left"},
    {R"({"enum": ["a"], "maxLength": 3})", "#/enum: beside"},
    {R"({"anyOf": []})", "#/anyOf"},
    {R"({"anyOf": {}})", "#/anyOf: found object, expected a list"},
    {R"({"$ref": "http://x/y"})", "#/$ref: \"http://x/y\""},
    {R"({"$ref": "#/$defs/none"})", "leads to nothing"},
    {R"({"$ref": 1})", "#/$ref"},
    {R"({"$ref": "#/$defs/a", "minLength": 1, "$defs": {"a": {}}})", "#/$ref: beside"},
    {R"({"$ref": "#"})", "refers to itself"},
    {R"({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}})",
     "refers to itself"},
    {R"({"allOf": [{"$ref": "#"}]})", "allOf"},
    {R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
     "#/type: the parts of allOf have none"},
    {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "#/pattern: differs"},
    {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]})",
     "does not fit \"b\""},
    {R"({"allOf": [{"items": {"type": "null"}}, {"prefixItems": [{"type": "string"}]}]})",
     "prefixItems"},
    {"false", "no value satisfies"},
    {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
     "no value satisfies"},
};

TEST(Keywords, AreRefusedByPlace) {
  for (const Refused& one : kRefused) {
    const std::string message = refusal(one.schema);
    EXPECT_NE(message.find(one.message), std::string::npos) << one.schema << "\n" << message;
  }
}

TEST(Grammar, AnyObject) {
  const Grammar grammar = *Grammar::any_object();
  EXPECT_TRUE(accepts(grammar, R"({"a": [1, {"b": null}], "c": "d"})"));
  EXPECT_FALSE(accepts(grammar, "[]"));
  EXPECT_FALSE(accepts(grammar, "1"));
}

TEST(Grammar, OneOf) {
  const std::vector<std::string> choices{"yes", "no", "now", "\u00e9"};
  const Grammar grammar = *Grammar::one_of(choices);
  for (const std::string& choice : choices) EXPECT_TRUE(accepts(grammar, choice));
  for (const char* text : {"", "ye", "nowx", "\"yes\""}) EXPECT_FALSE(accepts(grammar, text));
  EXPECT_FALSE(Grammar::one_of({}).ok());
  EXPECT_FALSE(Grammar::one_of(std::vector<std::string>{""}).ok());
  EXPECT_FALSE(Grammar::one_of(std::vector<std::string>{"\xff"}).ok());
}

TEST(Grammar, ToolCalls) {
  const std::vector<Tool> tools{
      {"add", *parse_json(R"({"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}},
                              "required": ["n"], "$defs": {"n": {"type": "integer"}}})",
                          "tool")},
      {"stop", Json()}};
  const std::string add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\": 1}}\n</tool_call>";
  const std::string stop = "<tool_call>\n{\"name\":\"stop\",\"arguments\":{}}\n</tool_call>";
  ToolCallFormat format;
  const Grammar one = *Grammar::tool_calls(tools, format);
  EXPECT_TRUE(accepts(one, add));
  EXPECT_TRUE(accepts(one, stop));
  EXPECT_FALSE(accepts(one, add + "\n" + stop));
  EXPECT_FALSE(accepts(one, "<tool_call>\n{\"name\": \"stop\", \"arguments\": 1}\n</tool_call>"));
  EXPECT_FALSE(accepts(one, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(accepts(one, "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>"));
  format.several = true;
  const Grammar several = *Grammar::tool_calls(tools, format);
  EXPECT_TRUE(accepts(several, add));
  EXPECT_TRUE(accepts(several, add + "\n" + stop + "\n" + add));
  EXPECT_FALSE(accepts(several, add + stop));
  EXPECT_FALSE(accepts(several, add + "\n"));
  EXPECT_FALSE(Grammar::tool_calls({}, format).ok());
}

}  // namespace
}  // namespace switchyard::grammar
