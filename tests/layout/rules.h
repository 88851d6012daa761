// The include rules of cmake/rooms.txt, as functions of text so that they can be tested on made-up files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pacer::layout {

struct Room {
  std::string name;
  bool links_torch;
};

// Lines "NAME yes|no" in order; '#' begins a comment line.
std::vector<Room> parse_rooms(const std::string& text);

// One sentence per include of `file` ("pacer/ROOM/...") that the order forbids: a room below, a room with torch from
// one without, torch in a room without, all of torch at once, tests or the program, a path that does not begin at the
// root.
std::vector<std::string> include_violations(const std::filesystem::path& file, const std::string& text,
                                            const std::vector<Room>& order);

// The first include that pulls in every operator (a dozen seconds a file), or "".
std::string whole_torch_include(const std::string& text);

}  // namespace pacer::layout
