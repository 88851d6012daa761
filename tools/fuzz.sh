#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs them, as many at a time as there are processors.
#
#   tools/fuzz.sh [--seconds N] [--jobs N] [--keep FOLDER] [TARGET...]
#
#   --seconds N    for every target (default 30)
#   --jobs N       targets at a time (default: one per processor)
#   --keep FOLDER  new inputs are kept in FOLDER/TARGET, and a later call goes on from them (default: forgotten)
#
# A finding stands in build-fuzz/findings/ and makes the exit status 1; tests/fuzz/README.md says what to do with it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=30 jobs="$(nproc)" keep="" targets=()
while (($#)); do
  case "$1" in
    --seconds) seconds="${2:?--seconds needs a number}"; shift ;;
    --jobs) jobs="${2:?--jobs needs a number}"; shift ;;
    --keep) keep="${2:?--keep needs a folder}"; shift ;;
    --help | -h) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) printf "error: unknown option '%s'\nhint: tools/fuzz.sh --help lists the options\n" "$1" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done

# A compiler of one's own choice: CXX=clang++-18 tools/fuzz.sh
compiler="${CXX:-}"
if [[ "$compiler" != *clang* ]]; then
  compiler="$(command -v clang++ || compgen -c clang++- | sort -V | tail -n 1 || true)"
fi
[[ -n "$compiler" ]] || { printf 'error: no clang++ here\nhint: tools/setup.sh --ci installs it on Debian\n' >&2; exit 7; }
cmake --preset fuzz -Wno-dev -DCMAKE_CXX_COMPILER="$compiler" > /dev/null
cmake --build build-fuzz --parallel "$jobs" --target fuzzers

((${#targets[@]})) || for program in build-fuzz/bin/*_fuzz; do
  name="${program##*/}"
  targets+=("${name%_fuzz}")
done

# Sanitizers keep freed memory for a while (quarantine); one allocation may take 100 MB at most, which is the bound that the
# readers promise. The bound on time is processor time, checked by the targets themselves; -timeout is for what never ends.
export ASAN_OPTIONS="quarantine_size_mb=16:allocator_may_return_null=0:${ASAN_OPTIONS:-}"
mkdir -p build-fuzz/findings build-fuzz/logs
run_one() {
  local name="$1" corpus=()
  if [[ -n "$3" ]]; then
    mkdir -p "$3/$name"
    corpus=("$3/$name")
  else
    corpus=("$(mktemp -d)")
    trap 'rm -rf "${corpus[0]}"' RETURN
  fi
  local dictionary=()
  [[ ! -f "tests/fuzz/$name.dict" ]] || dictionary=("-dict=tests/fuzz/$name.dict")
  local log="build-fuzz/logs/$name" status=0
  "build-fuzz/bin/${name}_fuzz" "${corpus[0]}" "tests/fuzz/corpus/$name" "${dictionary[@]}" -max_total_time="$2" -max_len=16384 \
    -timeout=60 -rss_limit_mb=1024 -malloc_limit_mb=100 -use_value_profile=1 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/findings/$name-" > "$log" 2>&1 || status=$?
  printf '%-12s %s, %s inputs in %s s\n' "$name" "$([[ $status == 0 ]] && echo 'no finding' || echo FINDING)" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$2"
  if ((status)); then grep -aE -A 30 'ERROR|SUMMARY|terminate|runtime error|took more' "$log" | head -n 60; fi
  return "$status"
}
export -f run_one
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I '{}' bash -c 'run_one "$@"' _ '{}' "$seconds" "$keep" || exit 1
