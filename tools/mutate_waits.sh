#!/usr/bin/env bash
# Shows that a test misses every wait and every record of a stream: leaves the sites out one by one (PACER_DISABLED_SITES) and runs
# the conformance suite on the simulated NPU, or the tests of process groups, which must then fail.
#
#   tools/mutate_waits.sh [BUILD_DIR]       BUILD_DIR: build
#
# Prints a line per site with the first test that noticed; exit code 1 when one goes unnoticed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin="${1:-build}/bin"
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 PACER_TEST_DEVICE=simnpu PACER_TEST_SEEDS="${PACER_TEST_SEEDS:-1}"

run() {  # SITE: the tests that must miss it
  if [[ "$1" == process_group.* ]]; then
    timeout 200 "$bin/distributed_test" --gtest_filter='ProcessGroup.*:GroupOnDevices.*:EngineOnDevices.Every*' --gtest_fail_fast 2>&1
  else
    timeout 300 "$bin/conformance_test" --gtest_filter='-MutatedWaits.*' --gtest_fail_fast 2>&1
  fi
}
for group in conformance. process_group.; do
  run "$group" > /dev/null || { echo "error: the tests of $group fail with all sites in place" >&2; exit 2; }
done

mapfile -t sites < <(grep -rhoE '\b(wait|record_stream)\("[a-z0-9_.]+"' pacer --include='*.cpp' --include='*.h' |
  sed -E 's/.*"(.*)"/\1/' | sort -u)
unnoticed=0
for site in "${sites[@]}"; do
  if output="$(export PACER_DISABLED_SITES="$site" && run "$site")"; then
    printf '%-28s UNNOTICED\n' "$site"
    unnoticed=$((unnoticed + 1))
  else
    printf '%-28s %s\n' "$site" "$(grep -m1 -oE '\[  FAILED  \] [^ ,]+' <<< "$output" | sed 's/.*\] //' || echo 'the program ended')"
  fi
done
((unnoticed == 0))
