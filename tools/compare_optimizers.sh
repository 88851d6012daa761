#!/usr/bin/env bash
# Muon against AdamW on recipes/tiny_lm.yaml: each tries four rates with one seed, the best by held-out loss then trains with three
# other seeds. Prints two Markdown tables: the trials, and the seeds with mean and spread.
#
#   tools/compare_optimizers.sh FOLDER [KEY=VALUE ...]
#
# FOLDER keeps the runs; those that are finished are not run again, so the script may be stopped and started. KEY=VALUE are
# overrides of the recipe for every run. PACER: the command to run instead of build/bin/pacer. MUON_RATES, ADAMW_RATES, SEEDS:
# instead of those below. One thread a run; 14 runs of about two minutes.
set -euo pipefail
[[ $# -ge 1 ]] || { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
root="$(cd -P "${BASH_SOURCE[0]%/*}/.." && pwd)"
folder="$1"
shift
read -ra pacer <<< "${PACER:-$root/build/bin/pacer}"
# Factors of two around what each needs: no best rate may be the last of its list.
declare -A rates=([muon]="${MUON_RATES:-4e-3 8e-3 1.6e-2 3.2e-2}" [adamw]="${ADAMW_RATES:-5e-4 1e-3 2e-3 4e-3}") best=()
read -ra seeds <<< "${SEEDS:-2 3 4}"
kTrialSeed=1
mkdir -p "$folder"
cd "$root"  # the recipe names its text from here
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

last() {  # FILE KIND FIELD: of the last line of that kind
  sed -n "s/^{\"kind\":\"$2\",.*\"$3\":\([^,}]*\).*/\1/p" "$1" | tail -n 1
}
run() {  # OPTIMIZER RATE SEED [KEY=VALUE ...]: trains unless that is done; sets `loss` and `cpu`
  local optimizer="$1" rate="$2" seed="$3" run
  shift 3
  run="$folder/${optimizer}_${rate}_$seed"
  if [[ ! -e "$run/metrics.jsonl" || "$(last "$run/metrics.jsonl" end finished)" != true ]]; then
    "${pacer[@]}" train -c recipes/tiny_lm.yaml --run "$run" "optimizer.matrix=$optimizer" "optimizer.learning_rate=$rate" \
      "seed=$seed" validation.every=0 "$@" > "$run.log" 2>&1 || { cat "$run.log" >&2; return 1; }
  fi
  loss="$(last "$run/metrics.jsonl" validation loss)" cpu="$(last "$run/metrics.jsonl" end cpu_s)"
}
mean_and_spread() { awk '{ s += $1; q += $1 * $1 } END { m = s / NR; printf "%.4f ± %.4f", m, sqrt((q - NR * m * m) / (NR - 1)) }'; }

printf '| optimizer | rate: held-out loss of seed %s |\n| --- | --- |\n' "$kTrialSeed"
for optimizer in muon adamw; do
  least= trials=
  for rate in ${rates[$optimizer]}; do
    run "$optimizer" "$rate" "$kTrialSeed" "$@"
    trials+="${trials:+, }$rate: $(printf '%.4f' "$loss")"
    if [[ -z "$least" ]] || awk "BEGIN { exit !($loss < $least) }"; then least="$loss" best[$optimizer]="$rate"; fi
  done
  printf '| %s | %s |\n' "$optimizer" "$trials"
done

printf '\n| optimizer | rate |'
printf ' seed %s |' "${seeds[@]}"
printf ' mean ± deviation | CPU s a run |\n| --- | --- |'
printf ' --- |%.0s' "${seeds[@]}" 1 2
printf '\n'
for optimizer in muon adamw; do
  losses=() seconds=()
  for seed in "${seeds[@]}"; do
    run "$optimizer" "${best[$optimizer]}" "$seed" "$@"
    losses+=("$loss") seconds+=("$cpu")
  done
  printf '| %s | %s |' "$optimizer" "${best[$optimizer]}"
  printf ' %.4f |' "${losses[@]}"
  printf ' %s | %s |\n' "$(printf '%s\n' "${losses[@]}" | mean_and_spread)" \
    "$(printf '%s\n' "${seconds[@]}" | awk '{ s += $1 } END { printf "%.0f", s / NR }')"
done
