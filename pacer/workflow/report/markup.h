// The few pieces of HTML and SVG that a report is made of.
#pragma once

#include <string>
#include <string_view>

namespace pacer::workflow {

// & < > " ' as entities; control characters that HTML forbids become U+FFFD, bytes that are not UTF-8 too.
std::string escaped(std::string_view text);

// A number for an SVG attribute: at most two digits after the point, no exponent.
std::string coordinate(double value);

// <tag attributes>content</tag>; content is markup already.
std::string element(std::string_view tag, std::string_view attributes, std::string_view content);

}  // namespace pacer::workflow
