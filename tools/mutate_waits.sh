#!/usr/bin/env bash
# Shows that a test misses every wait and every record of a stream: leaves the sites out one by one (PACER_DISABLED_SITES) and runs
# the conformance suite on the simulated NPU, which must then fail.
#
#   tools/mutate_waits.sh [BUILD_DIR]       BUILD_DIR: build
#
# Prints a line per site with the first check that noticed; exit code 1 when one goes unnoticed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
test="${1:-build}/bin/conformance_test"
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 PACER_TEST_DEVICE=simnpu PACER_TEST_SEEDS="${PACER_TEST_SEEDS:-2}"
"$test" > /dev/null 2>&1 || { echo "error: $test fails with all sites in place" >&2; exit 2; }

mapfile -t sites < <(grep -rhoE '\b(wait|record_stream)\("[a-z0-9_.]+"' pacer --include='*.cpp' --include='*.h' |
  sed -E 's/.*"(.*)"/\1/' | sort -u)
unnoticed=0
for site in "${sites[@]}"; do
  if output="$(PACER_DISABLED_SITES="$site" timeout 300 "$test" --gtest_fail_fast 2>&1)"; then
    printf '%-28s UNNOTICED\n' "$site"
    unnoticed=$((unnoticed + 1))
  else
    printf '%-28s %s\n' "$site" "$(grep -m1 -oE '\[  FAILED  \] [^ ,]+' <<< "$output" | sed 's/.*\] //' || echo 'the program ended')"
  fi
done
((unnoticed == 0))
