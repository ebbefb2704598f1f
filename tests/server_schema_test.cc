// What a request's schemas and tools may be, beyond what grammar_test says of schemas alone: names that a call can
// carry, values as they were sent, and a log without the client's words.
#include "api_fixture.h"

namespace lockstep::test {
namespace {

/// Requests of every protocol with one tool of that name and these parameters.
std::vector<std::pair<const char*, Json>> requests_with_tool(const std::string& name, const Json& parameters) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  const Json function = {{"name", name}, {"parameters", parameters}};
  const Json typed = {{"type", "function"}, {"name", name}, {"parameters", parameters}};
  const Json space = {{"type", "namespace"}, {"name", "n"}, {"tools", Json::array({typed})}};
  return {
      {"/chat/completions",
       {{"messages", messages}, {"tools", Json::array({{{"type", "function"}, {"function", function}}})}}},
      {"/chat/completions", {{"messages", messages}, {"functions", Json::array({function})}}},
      {"/messages", {{"messages", messages}, {"tools", Json::array({{{"name", name}, {"input_schema", parameters}}})}}},
      {"/responses", {{"input", "x"}, {"tools", Json::array({typed})}}},
      {"/responses", {{"input", "x"}, {"tools", Json::array({space})}}},
  };
}

Json one_parameter(const std::string& name) {
  return {{"type", "object"}, {"properties", {{name, {{"type", "string"}}}}}};
}

TEST(ServerSchema, NamesThatACallCannotCarryAreRefusedByEveryProtocol) {
  const Json referred = {{"$ref", "#/$defs/a"}, {"$defs", {{"a", one_parameter("x\"y")}}}};
  const Json joined = {{"allOf", Json::array({one_parameter("x<y")})}};
  const struct {
    const char* name;
    Json parameters;
    const char* told;
  } kCases[] = {
      {"f", one_parameter(R"(a"><b)"), R"(the tool "f": its parameter "a\"><b", expected one without quotes)"},
      {"f", one_parameter(""), R"(the tool "f": its parameter "", expected one of at least one character)"},
      {"f", one_parameter("a\nb"), R"(its parameter "a\nb", expected one without quotes)"},
      {"f", one_parameter(std::string(2000, 'n')), "expected one of at most 1024 bytes"},
      {"f", one_parameter("｜DSML｜"), "the model's own marks"},
      {"f", referred, R"(its parameter "x\"y")"},
      {"f", joined, R"(its parameter "x<y")"},
      {"f\"g", one_parameter("a"), R"(the tool's name "f\"g", expected one without quotes)"},
      {"f>", one_parameter("a"), R"(the tool's name "f>")"},
  };
  for (const auto& c : kCases)
    for (const auto& [target, body] : requests_with_tool(c.name, c.parameters)) {
      ApiFixture api;
      const auto exchange = api.send(target, json_text(body));
      EXPECT_EQ(exchange->status, 400) << c.told;
      const std::string message = exchange->json()["error"]["message"];
      EXPECT_NE(message.find(c.told), std::string::npos) << message;
      EXPECT_TRUE(message.starts_with(body.contains("functions") ? "functions[0]" : "tools[0]")) << message;
    }
}

TEST(ServerSchema, OtherNamesAreTakenAndComeBackAsTheyAre) {
  const std::string names[] = {"a", "größe", "a b", "it's", "a.b[0]", "name", "x=y&z", "$ref"};
  for (const std::string& name : names) {
    ApiFixture api;
    api.source.scripts = {"</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"" + name +
                          "\">\n<｜DSML｜parameter name=\"" + name +
                          "\" string=\"true\">v</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"};
    const auto exchange = api.ask("/chat/completions", requests_with_tool(name, one_parameter(name))[0].second);
    ASSERT_EQ(exchange->status, 200) << exchange->body;
    const Json call = exchange->json()["choices"][0]["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(call["name"], name);
    EXPECT_EQ(parse_json(call["arguments"].get<std::string>(), "arguments"), Json({{name, "v"}})) << exchange->body;
  }
}

TEST(ServerSchema, AListedIntegerKeepsItsDigits) {
  for (const char* schema : {R"({"const": 12345678901234567890123})", R"({"enum": [12345678901234567890123]})",
                             R"({"enum": [12345678901234567890123], "maximum": 123456789012345678901234567890})"}) {
    ApiFixture api;
    api.send("/chat/completions", R"({"messages": [{"role": "user", "content": "x"}], "thinking": false,
        "response_format": {"type": "json_schema", "json_schema": {"strict": true, "schema": )" +
                                      std::string(schema) + "}}}");
    ASSERT_EQ(api.source.jobs.size(), 1u) << schema;
    EXPECT_TRUE(may_say(api, "12345678901234567890123")) << schema;
  }
}

TEST(ServerSchema, WarningsOfToolsHoldNoWordsOfTheClients) {
  ApiFixture api;
  Json tool = {{"type", "object"}, {"properties", {{"secret", {{"type", "string"}, {"maxLength", 1000000}}}}}};
  api.send("/chat/completions", json_text(requests_with_tool("secret_tool", tool)[0].second));
  ASSERT_EQ(api.source.jobs.size(), 1u);
  ASSERT_EQ(api.warnings.size(), 1u);
  EXPECT_EQ(api.warnings[0].find("secret"), std::string::npos) << api.warnings[0];
  EXPECT_TRUE(api.warnings[0].ends_with("tools: their schemas make no grammar; only their names are held to"))
      << api.warnings[0];
}

}  // namespace
}  // namespace lockstep::test
