#!/usr/bin/env bash
# Formats every C++ file of the tree with the pinned clang-format, or lists the files that differ.
#
#   tools/format.sh [--check]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
clang_format="${PACER_DEPS_DIR:-.deps}/tools/clang_format/data/bin/clang-format"
[[ -x "$clang_format" ]] || { echo "error: the pinned clang-format is not here" >&2; echo "hint: tools/setup.sh --tools" >&2; exit 1; }

mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard -- '*.cpp' '*.h')
present=()
for file in "${files[@]}"; do [[ ! -f "$file" ]] || present+=("$file"); done
if [[ "${1:-}" != --check ]]; then
  "$clang_format" -i "${present[@]}"
  exit 0
fi
bad=0
for file in "${present[@]}"; do
  "$clang_format" "$file" | cmp --quiet - "$file" || { echo "not formatted: $file"; bad=$((bad + 1)); }
done
echo "format: ${#present[@]} files, $bad not formatted"
((bad == 0)) || { echo "hint: make format" >&2; exit 1; }
