// A JSON schema as parts of a grammar. docs/structured-output.md lists the keywords.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar_builder.h"

namespace lockstep {

class SchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;
  using Node = GrammarBuilder::Node;
  using Rule = GrammarBuilder::Rule;

  /// `root` is what $ref refers into, and must outlive the compiler. `strict`: see Grammar::json_schema.
  SchemaCompiler(GrammarBuilder& builder, const Json& root, bool strict)
      : builder_(builder), root_(root), strict_(strict) {}

  /// What was left out of account for not being supported, each once: "schema at /a: keyword ...".
  const std::vector<std::string>& left_out() const { return left_out_; }

  /// After an error: what was made only in part is forgotten, and the compiler may go on with other schemas.
  void recover();

  /// A value that meets `schema`, which stands at `place` (a JSON pointer, "" for the root).
  Node value(const Json& schema, const std::string& place, Node next);

  /// The schema after its references and allOf are taken together; {} for true. Throws for false.
  Json resolved(const Json& schema, const std::string& place);

  /// A string that meets an already resolved schema: in JSON with its quotes, or its characters alone.
  Node string(const Json& schema, const std::string& place, bool in_json, Node next);

  /// The types that a resolved schema allows, by its `type`, or what its other keywords tell.
  static std::vector<std::string> types_of(const Json& schema);

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& what) const;
  void leave_out(const std::string& place, const std::string& what);
  void check_keywords(const Json& schema, const std::string& place);
  bool has_known_types(const Json& schema, const std::string& place);
  const Json& target(const std::string& reference, const std::string& place);
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
  std::map<std::string, Rule> rules_;  // by what a $ref says
  std::set<std::string> open_;         // references that are being resolved, with nothing consumed since
  std::vector<std::string> left_out_;
  const Json anything_ = true;
  int depth_ = 0;
};

}  // namespace lockstep
