#include "text/schema_references.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/// A fragment of a URI as it is meant: "%3C" is "<". What is no such code stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_code =
        text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
    if (is_code) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

const Json* find_pointer(const Json& schema, const std::string& pointer) {
  try {
    return &schema.at(Json::json_pointer(pointer));
  } catch (const Json::exception&) {
    return nullptr;
  }
}

}  // namespace

std::string place_in(const std::string& place, std::string_view name) {
  std::string out = place + "/";
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

/// Of names given twice the first counts. Values that are no schemas are not looked into.
void SchemaReferences::find_anchors(const Json& schema, const std::string& place) {
  if (schema.is_object()) {
    for (const char* keyword : {"$anchor", "$dynamicAnchor", "$id", "id"}) {
      const auto found = schema.find(keyword);
      if (found == schema.end() || !found->is_string()) continue;
      std::string name = found->get<std::string>();
      if (std::string_view(keyword).ends_with("nchor")) name.insert(0, "#");
      if (name.size() > 1 && name.ends_with('#')) name.pop_back();
      anchors_->emplace(std::move(name), Target{&schema, place});
    }
    for (const auto& [key, value] : schema.items())
      if (key != "enum" && key != "const" && key != "default" && key != "examples" && key != "example")
        find_anchors(value, place_in(place, key));
  } else if (schema.is_array()) {
    for (std::size_t i = 0; i < schema.size(); ++i) find_anchors(schema[i], place_in(place, std::to_string(i)));
  }
}

const SchemaReferences::Target* SchemaReferences::named(const std::string& name) {
  if (!anchors_) {
    anchors_.emplace();
    find_anchors(root_, "");
  }
  const auto found = anchors_->find(name);
  return found == anchors_->end() ? nullptr : &found->second;
}

bool SchemaReferences::leads_out(const std::string& reference) {
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  return hash > 0 && named(reference.substr(0, hash)) == nullptr;
}

std::optional<SchemaReferences::Target> SchemaReferences::find(const std::string& reference) {
  if (const auto known = known_.find(reference); known != known_.end()) return known->second;
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  Target base{&root_, ""};
  if (hash > 0) {
    const Target* const own = named(reference.substr(0, hash));
    if (own == nullptr) return std::nullopt;
    base = *own;
  }
  const std::string written = hash < reference.size() ? reference.substr(hash + 1) : std::string();
  if (written.empty()) return base;
  for (const std::string& fragment : {percent_decoded(written), written}) {
    if (fragment.starts_with('/')) {
      if (const Json* const found = find_pointer(*base.schema, fragment))
        return known_[reference] = {found, base.place + fragment};
    } else if (const Target* const found = named("#" + fragment)) {
      return known_[reference] = *found;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
