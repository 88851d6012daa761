// What string methods and text filters share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

enum class Side { left, right, both };

// str.strip: characters of `set`, or white space when there is none.
std::string strip(const std::string& text, const std::string* set, Side side);
// str.split and str.rsplit; limit < 0: no limit. separator null: runs of white space.
std::vector<std::string> split(const std::string& text, const std::string* separator, int64_t limit, bool from_right);
std::vector<std::string> split_lines(const std::string& text, bool keep_ends = false);
// At most `count` replacements, < 0: all. An empty `from` matches between all characters.
std::string replace(Context& context, const std::string& text, const std::string& from, const std::string& to,
                    int64_t count);
// Centres as str.center does: the odd space goes left or right by the parity of the width.
std::string center(Context& context, const std::string& text, int64_t width, const std::string& fill);

}  // namespace pacer::text::jinja
