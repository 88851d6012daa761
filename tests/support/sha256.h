// SHA-256 (FIPS 180-4), for golden files that keep a digest instead of ten thousand numbers.
#pragma once

#include <string>
#include <string_view>

namespace pacer::test {

std::string sha256(std::string_view bytes);  // 64 lower-case hexadecimal digits

}  // namespace pacer::test
