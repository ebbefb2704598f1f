// A JSON schema as parts of a grammar. docs/structured-output.md lists the keywords.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar_builder.h"
#include "text/schema_references.h"

namespace lockstep {

class Grammar;

class SchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;
  using Node = GrammarBuilder::Node;
  using Rule = GrammarBuilder::Rule;

  /// `root` is what $ref refers into, and must outlive the compiler. `strict`: see Grammar::json_schema.
  SchemaCompiler(GrammarBuilder& builder, const Json& root, bool strict)
      : builder_(builder), root_(root), strict_(strict) {}

  /// What was left out of account for not being supported, each once: "schema at /properties/*: keyword ...". For a
  /// log: names, values and patterns of the schema, which are a part of a prompt, are not in it.
  const std::vector<std::string>& left_out() const { return left_out_; }

  /// After an error: what was made only in part is forgotten, and the compiler may go on with other schemas.
  void recover();

  /// A value that meets `schema`, which stands at `place` (a JSON pointer, "" for the root).
  Node value(const Json& schema, const std::string& place, Node next);

  /// The schema after its references and allOf are taken together; {} for true. Throws NothingMeets for false.
  Json resolved(const Json& schema, const std::string& place);

  /// Tells `use` the ways of a resolved schema's anyOf or oneOf: as they stand there (`is_alone`), or resolved and put
  /// together with what stands beside the choice. Those for which it throws NothingMeets are left out; if that is all
  /// of them this throws it. False without a call if there is no choice.
  using UseWay = std::function<void(const Json& way, const std::string& place, bool is_alone)>;
  bool each_way(const Json& schema, const std::string& place, const UseWay& use);

  /// The values of a resolved schema's enum or const that meet all else in it. Throws NothingMeets if none does.
  std::vector<Json> choices_of(const Json& schema, const std::string& place);

  /// A value that a schema lists, as JSON without spaces; integers past 64 bits with all of their digits.
  static std::string text_of(const Json& value);

  /// A string that meets an already resolved schema: in JSON with its quotes, or its characters alone.
  Node string(const Json& schema, const std::string& place, bool in_json, Node next);

  /// The types that a resolved schema allows, by its `type`, or what its other keywords tell.
  static std::vector<std::string> types_of(const Json& schema);

 private:
  using Target = SchemaReferences::Target;

  [[noreturn]] void fail(const std::string& place, const std::string& what) const;
  /// As fail, where the schema is well formed.
  [[noreturn]] void fail_hopeless(const std::string& place, const std::string& what) const;
  /// `logged` is `what` without the client's words; the same if empty.
  void leave_out(const std::string& place, const std::string& what, const std::string& logged = {});
  void check_keywords(const Json& schema, const std::string& place);
  bool has_known_types(const Json& schema, const std::string& place);
  Target target(const std::string& reference, const std::string& place);
  bool meets(const Json& value, const Json& schema, const std::string& place);
  bool meets_type(const Json& value, const Json& schema, const std::string& place);
  bool object_meets(const Json& value, const Json& schema, const std::string& place);
  bool array_meets(const Json& value, const Json& schema, const std::string& place);
  bool text_meets(const std::string& text, const Json& schema, const std::string& place);
  bool number_meets(const Json& value, const Json& schema);
  Json merged(Json a, const Json& b, const std::string& place);
  Node resolved_value(const Json& schema, const std::string& place, Node next);
  Node typed(const std::string& type, const Json& schema, const std::string& place, Node next);
  Node object(const Json& schema, const std::string& place, Node next);
  Node array(const Json& schema, const std::string& place, Node next);
  Node number(const Json& schema, const std::string& place, bool is_integer, Node next);
  Node other_key(const std::vector<std::string>& names, Node next);
  NumberBounds bounds_of(const Json& schema, const std::string& place, bool is_integer);
  Rule rule_of(const Json& schema, const std::string& place);
  static int count_of(const Json& schema, const char* keyword, int otherwise);

  GrammarBuilder& builder_;
  const Json& root_;
  bool strict_;
  std::map<std::string, Rule> rules_;            // by what a $ref says
  std::set<std::string> open_;                   // references that are being resolved, with nothing consumed since
  std::map<std::string, std::string> hopeless_;  // rules that nothing meets, by the same, and the message
  std::vector<std::string> left_out_;
  const Json anything_ = true;
  SchemaReferences references_{root_};
  std::map<std::string, std::shared_ptr<Grammar>> patterns_;  // of choices; null: not supported
  int depth_ = 0;
  int checks_ = 0;  // of choices
  int ways_ = 0;    // that were tried
  int parts_ = 0;   // that were taken together
};

/// Equal as JSON Schema has it: 1 is 1.0, and the order of an object's members says nothing.
bool is_same_value(const SchemaCompiler::Json& a, const SchemaCompiler::Json& b);

}  // namespace lockstep
