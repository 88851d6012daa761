// What the standard streams are: a person's terminal or a file, with colour or without.
#pragma once

#include <string>
#include <string_view>

namespace pacer {

enum class StandardStream { output = 1, error = 2 };

bool is_terminal(StandardStream stream);

// Whether to write colour: NO_COLOR (no-color.org) turns it off, CLICOLOR_FORCE turns it on, else a terminal whose TERM
// is not "dumb" has it.
bool has_colour(StandardStream stream);

// Columns of the terminal; 80 where there is none.
int terminal_columns(StandardStream stream);

enum class Style { bold, dim, red, green, yellow, blue, cyan };

// `text` between the codes of `style` when `colour`, else `text`.
std::string styled(std::string_view text, Style style, bool colour);

}  // namespace pacer
