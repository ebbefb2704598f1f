// Tool calls in the model's own tags, with values of the types that the tools' schemas ask for.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/grammar.h"
#include "engine/grammar_schema.h"
#include "text/chat.h"

namespace lockstep {
namespace {

using Json = OrderedJson;
using Node = GrammarBuilder::Node;
using Rule = GrammarBuilder::Rule;

// Parameters up to so many may come in any order, each once: the ways are as many as the subsets. More of them come in
// the schema's order.
constexpr std::size_t kFreeOrder = 6;

class ToolGrammar {
 public:
  ToolGrammar(GrammarBuilder& builder, bool parallel) : builder_(builder), parallel_(parallel) {}

  void add(const Json& tool) { tools_.push_back(tool); }

  Node block(Node next) {
    const Node close = text("\n</", dsml("tool_calls>", next));
    std::vector<Rule> calls;
    for (const Json& tool : tools_) calls.push_back(builder_.rule([&](Node n) { return call(tool, n); }));
    const auto any_call = [&](Node n) {
      std::vector<Node> ways;
      for (const Rule rule : calls) ways.push_back(builder_.call(rule, n));
      return builder_.any_of(ways);
    };
    const auto more = [&](Node n) { return text("\n", any_call(n)); };
    const Node first = any_call(parallel_ ? builder_.repeat(more, 0, -1, close) : close);
    return text("<", dsml("tool_calls>\n", first));
  }

 private:
  Node text(std::string_view literal, Node next) { return builder_.literal(literal, next); }
  Node dsml(std::string_view after, Node next) { return builder_.symbol(kDsml, text(after, next)); }

  Node call(const Json& tool, Node next) {
    const std::string name = tool.value("name", "");
    static const Json kNothing = {{"properties", Json::object()}};
    const auto found = tool.find("parameters");
    const Json& parameters = found != tool.end() && found->is_object() ? *found : kNothing;
    const Node end = text("\n</", dsml("invoke>", next));
    return text("<", dsml("invoke name=\"" + name + "\">\n", members(parameters, end)));
  }

  /// The parameters, with new lines between them, and then `end`.
  Node members(const Json& parameters, Node end) {
    SchemaCompiler compiler(builder_, parameters, false);
    Json schema;
    try {
      schema = compiler.resolved(parameters, "");
    } catch (const Error&) {
      compiler.recover();
      schema = Json::object();  // malformed: anything may come
    }
    const Json properties =
        schema.contains("properties") && schema["properties"].is_object() ? schema["properties"] : Json::object();
    std::vector<std::string> names;
    for (const auto& [name, property] : properties.items()) names.push_back(name);
    const auto is_required = [&](const std::string& name) {
      const auto required = schema.find("required");
      return required != schema.end() && required->is_array() &&
             std::find(required->begin(), required->end(), Json(name)) != required->end();
    };
    std::vector<Rule> rules;
    for (const std::string& name : names)
      rules.push_back(builder_.rule([&](Node n) { return parameter(compiler, name, properties[name], n); }));

    const auto additional = schema.find("additionalProperties");
    const bool is_open = additional != schema.end() ? *additional != false : !schema.contains("properties");
    if (is_open && names.empty()) {
      const auto one = [&](Node n) { return any_parameter(n); };
      const Node more = builder_.repeat([&](Node n) { return text("\n", any_parameter(n)); }, 0, -1, end);
      return builder_.any_of({one(more), end});
    }
    if (names.size() <= kFreeOrder) {
      std::map<std::pair<unsigned, bool>, Node> known;
      return subsets(names, rules, is_required, 0, true, end, known);
    }
    Node begun = end, fresh = end;
    for (std::size_t i = names.size(); i-- > 0;) {
      const Node first = builder_.call(rules[i], begun), later = text("\n", first);
      fresh = is_required(names[i]) ? first : builder_.any_of({first, fresh});
      begun = is_required(names[i]) ? later : builder_.any_of({later, begun});
    }
    return fresh;
  }

  template <class IsRequired>
  Node subsets(const std::vector<std::string>& names, const std::vector<Rule>& rules, const IsRequired& is_required,
               unsigned given, bool is_first, Node end, std::map<std::pair<unsigned, bool>, Node>& known) {
    if (const auto found = known.find({given, is_first}); found != known.end()) return found->second;
    std::vector<Node> ways;
    bool is_enough = true;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if ((given >> i & 1u) != 0) continue;
      is_enough = is_enough && !is_required(names[i]);
      const Node rest = subsets(names, rules, is_required, given | 1u << i, false, end, known);
      const Node one = builder_.call(rules[i], rest);
      ways.push_back(is_first ? one : text("\n", one));
    }
    if (is_enough) ways.push_back(end);
    return known[{given, is_first}] = builder_.any_of(ways);
  }

  Node parameter(SchemaCompiler& compiler, const std::string& name, const Json& schema, Node next) {
    const Node close = text("</", dsml("parameter>", next));
    std::vector<Node> strings, others;
    try {
      values(compiler, compiler.resolved(schema, ""), close, strings, others);
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("schema: too large")) throw;
      compiler.recover();
      strings.clear();
      others.clear();
    }
    if (strings.empty() && others.empty()) return text("<", dsml("parameter name=\"" + name + "\" ", any_value(close)));
    std::vector<Node> ways;
    if (!strings.empty()) ways.push_back(text("string=\"true\">", builder_.any_of(strings)));
    if (!others.empty()) ways.push_back(text("string=\"false\">", builder_.any_of(others)));
    return text("<", dsml("parameter name=\"" + name + "\" ", builder_.any_of(ways)));
  }

  /// What a resolved schema allows: strings as they are, and other values as JSON.
  void values(SchemaCompiler& compiler, const Json& schema, Node close, std::vector<Node>& strings,
              std::vector<Node>& others) {
    const bool has_ways = compiler.each_way(schema, "", [&](const Json& way, const std::string&, bool is_alone) {
      std::vector<Node> texts, rest;  // taken over once the whole way is known to be one
      values(compiler, is_alone ? compiler.resolved(way, "") : way, close, texts, rest);
      strings.insert(strings.end(), texts.begin(), texts.end());
      others.insert(others.end(), rest.begin(), rest.end());
    });
    if (has_ways) return;
    if (schema.contains("const") || schema.contains("enum")) {
      for (const Json& choice : compiler.choices_of(schema, "")) {
        if (choice.is_string()) {
          strings.push_back(text(choice.get<std::string>(), close));
        } else {
          others.push_back(text(SchemaCompiler::text_of(choice), close));
        }
      }
      return;
    }
    for (const std::string& type : SchemaCompiler::types_of(schema)) {
      if (type == "string") {
        strings.push_back(compiler.string(schema, "", false, close));
        continue;
      }
      Json one = schema;
      one["type"] = type;
      one.erase("nullable");
      // A place of its own: the compiler knows rules by their places.
      others.push_back(compiler.value(one, "/parameter/" + std::to_string(places_++), close));
    }
  }

  Node any_value(Node close) {
    const Node string = builder_.repeat([&](Node n) { return builder_.character(all_code_points(), n); }, 0, -1, close);
    return builder_.any_of(
        {text("string=\"true\">", string), text("string=\"false\">", builder_.call(builder_.json_value(), close))});
  }

  Node any_parameter(Node next) {
    const Node close = text("</", dsml("parameter>", next));
    const CodePoints plain = complement({{0, 0x1f}, {'"', '"'}, {'<', '<'}, {'>', '>'}});
    const Node named =
        builder_.repeat([&](Node n) { return builder_.character(plain, n); }, 1, -1, text("\" ", any_value(close)));
    return text("<", dsml("parameter name=\"", named));
  }

  GrammarBuilder& builder_;
  bool parallel_;
  std::vector<Json> tools_;
  int places_ = 0;
};

}  // namespace

std::shared_ptr<Grammar> Grammar::tool_calls(std::span<const OrderedJson> tools, ToolChoice choice,
                                             std::string_view only, bool parallel) {
  GrammarBuilder builder;
  ToolGrammar grammar(builder, parallel);
  bool is_any = false;
  for (const OrderedJson& tool : tools) {
    if (!tool.is_object() || tool.value("name", "").empty())
      throw Error(Error::Kind::bad_argument, "tools: one is no object with a name");
    if (!only.empty() && tool.value("name", "") != only) continue;
    grammar.add(tool);
    is_any = true;
  }
  if (!is_any)
    throw Error(Error::Kind::bad_argument, only.empty() ? "tools: none, expected at least one"
                                                        : "tools: none is named \"" + std::string(only) + "\"");
  const auto body = [&](Node next) -> Node {
    const Node block = grammar.block(next);
    const Node apart = builder.any_of({builder.literal("\n\n", block), block});
    if (choice == ToolChoice::required) return apart;
    // Text goes on as long as it likes; a "<" may be text or the beginning of a block, whatever comes next decides.
    return builder.repeat([&](Node n) { return builder.character(all_code_points(), n); }, 0, -1,
                          builder.any_of({next, block}));
  };
  return std::make_shared<Grammar>(builder.finish(body, "tools"));
}

}  // namespace lockstep
