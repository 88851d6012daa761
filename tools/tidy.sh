#!/usr/bin/env bash
# clang-tidy on the source files changed since the last commit that passed it, which .ci/tidy_passed names.
#
#   tools/tidy.sh [--minutes N] [--record] [FILE...]
#
#   --minutes N  start no file after N minutes; the rest is listed by name and is no failure
#   --record     when every file passed, write the present commit to .ci/tidy_passed (commit that file)
#   FILE...      these files and nothing else
#
# Until a commit is recorded, findings are listed and do not fail: `make tidy` goes through all files and records it.
# Needs a configured build folder for compile_commands.json. A changed header is checked through the source beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
clang_tidy="${PACER_DEPS_DIR:-.deps}/tools/clang_tidy/data/bin/clang-tidy"
[[ -x "$clang_tidy" ]] || { echo "error: the pinned clang-tidy is not here" >&2; echo "hint: tools/setup.sh --tools" >&2; exit 1; }
build="${PACER_BUILD_DIR:-build}"
[[ -f "$build/compile_commands.json" ]] || { echo "error: no $build/compile_commands.json" >&2; echo "hint: make build" >&2; exit 1; }

minutes=0 record=no files=()
while (($#)); do
  case "$1" in
    --minutes) minutes="$2"; shift ;;
    --record) record=yes ;;
    *) files+=("$1") ;;
  esac
  shift
done

changed_files() {
  local passed=""
  [[ ! -f .ci/tidy_passed ]] || read -r passed < .ci/tidy_passed
  if [[ -n "$passed" ]] && git cat-file -e "$passed^{commit}" 2> /dev/null; then
    git diff --name-only --diff-filter=d "$passed" -- '*.cpp' '*.h'
    git ls-files --others --exclude-standard -- '*.cpp' '*.h'
  else
    git ls-files --cached --others --exclude-standard -- '*.cpp' '*.h'
  fi
}
if ((${#files[@]} == 0)); then
  mapfile -t files < <(changed_files | sed 's/\.h$/.cpp/' | sort -u)
fi

todo=()
for file in "${files[@]}"; do
  # Only what this build compiles: other instruction sets and consumer examples have no compile command.
  if [[ -f "$file" ]] && grep -qF "\"file\": \"$PWD/$file\"" "$build/compile_commands.json"; then todo+=("$file"); fi
done
echo "tidy: ${#todo[@]} files"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
deadline=$((minutes > 0 ? SECONDS + 60 * minutes : 1 << 40))
# Started one by one from here, so that the time limit needs no signal in the middle of a file.
running=0 left=()
for i in "${!todo[@]}"; do
  if ((SECONDS >= deadline)); then left+=("${todo[$i]}"); continue; fi
  if ((running >= $(nproc))); then wait -n || true; running=$((running - 1)); fi
  {
    nice "$clang_tidy" --quiet -p "$build" --extra-arg=-fno-openmp "${todo[$i]}" > "$work/$i.out" 2> "$work/$i.err" && touch "$work/$i.passed"
  } &
  running=$((running + 1))
done
wait

bad=0
for i in "${!todo[@]}"; do
  [[ -f "$work/$i.out" && ! -f "$work/$i.passed" ]] || continue
  bad=$((bad + 1))
  echo "tidy: FAILED ${todo[$i]}"
  cat "$work/$i.out"
  # The tool counts suppressed warnings on stderr also when all is well.
  grep -v -E 'warnings? generated|Suppressed|Use -header-filter' "$work/$i.err" || true
done
for file in "${left[@]}"; do echo "tidy: not reached in $minutes minutes: $file"; done
echo "tidy: $((${#todo[@]} - ${#left[@]} - bad)) passed, $bad failed, ${#left[@]} not reached, $SECONDS s"
if ((bad > 0)) && [[ ! -f .ci/tidy_passed && "$record" == no ]]; then
  # Nothing to compare with: the findings stand above for whoever runs `make tidy`, and do not stop a change.
  echo "tidy: no commit is recorded as passed (.ci/tidy_passed), so findings are listed and do not fail"
  exit 0
fi
((bad == 0)) || exit 1
if [[ "$record" == yes && ${#left[@]} == 0 ]]; then
  git rev-parse HEAD > .ci/tidy_passed
fi
