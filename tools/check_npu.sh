#!/usr/bin/env bash
# Compiles and links the Ascend plugins against the headers of the pinned torch-npu package, with generated stand-ins for the
# vendor's libraries, which are not on an ordinary machine. tests/ascend loads what it makes.
#
#   tools/check_npu.sh TORCH_DIR TORCH_NPU_DIR OUT
#
# TORCH_DIR and TORCH_NPU_DIR are the folders of the two packages. Writes OUT/plugins/libpacer_{npu,hccl}.so and OUT/stubs/*.so.
# Every function of a stand-in fails; they exist so that libtorch_npu.so can be loaded.
set -euo pipefail
[[ $# -eq 3 ]] || { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
root="$(cd -P "${BASH_SOURCE[0]%/*}/.." && pwd)"
torch="$1" npu="$2" out="$3"
cxx="${CXX:-g++}" cc="${CC:-gcc}"
mkdir -p "$out/plugins" "$out/stubs"

# What a library needs and none of the libraries beside it has.
defined() { nm -D --defined-only "$@" 2> /dev/null | awk 'NF >= 3 { sub(/@.*/, "", $NF); print $NF }' | sort -u; }
needed() { nm -D --undefined-only "$@" | awk '$1 == "U" { sub(/@.*/, "", $NF); print $NF }' | sort -u; }
own=("$npu"/lib/lib{torch_npu,tensorpipe,npu_profiler}.so)
system=("$torch"/lib/lib{torch_cpu,torch,torch_python,c10,shm}.so
  $(ldconfig -p | awk '/lib(stdc\+\+\.so\.6|m\.so\.6|gcc_s\.so\.1|c\.so\.6|rt\.so\.1|dl\.so\.2|pthread\.so\.0) / { print $NF }')
  /lib64/ld-linux-x86-64.so.2)
comm -23 <(needed "${own[@]}") <(for library in "${own[@]}" "${system[@]}"; do defined "$library"; done | sort -u) |
  grep -vE '^_?Py' > "$out/stubs/symbols.txt"
{
  # A static initialiser of libtorch_npu.so reads the name of the processor.
  echo 'const char* aclrtGetSocName(void) { return "Ascend910B1"; }'
  grep -v '^aclrtGetSocName$' "$out/stubs/symbols.txt" | sed 's/.*/int &(void) { return 1; }/'
} > "$out/stubs/stubs.c"
"$cc" -w -fno-builtin -shared -fPIC -Wl,-soname,libascendcl.so -o "$out/stubs/libascendcl.so" "$out/stubs/stubs.c"
for name in hccl acl_op_compiler ge_runner graph acl_tdt_channel; do
  echo "int pacer_stub_$name;" | "$cc" -shared -fPIC -Wl,-soname,lib$name.so -o "$out/stubs/lib$name.so" -x c -
done

flags=(-std=c++20 -O1 -shared -fPIC -Wall -Wextra -DUSE_DISTRIBUTED -DAT_PER_OPERATOR_HEADERS -I "$root"
  -isystem "$npu/include" -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include"
  -isystem "$torch/include/torch/csrc/distributed")
link=(-L "$torch/lib" -Wl,--no-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs -ltorch_cpu -lc10)
"$cxx" "${flags[@]}" "$root/plugins/hccl/hccl.cpp" -o "$out/plugins/libpacer_hccl.so" "${link[@]}" -L "$npu/lib" -l:libtorch_npu.so
"$cxx" "${flags[@]}" "$root"/plugins/npu/*.cpp -o "$out/plugins/libpacer_npu.so" "${link[@]}" -ldl

# All that the plugin takes from torch_npu must be in its library, or it would only fail on the hardware.
missing="$(comm -12 <(needed "$out/plugins/libpacer_hccl.so" | grep -E 'c10d_npu|c10_npu') \
  <(comm -23 <(needed "$out/plugins/libpacer_hccl.so") <(defined "$npu/lib/libtorch_npu.so")))"
[[ -z "$missing" ]] || { echo "error: not in libtorch_npu.so: $missing" >&2; exit 1; }
echo "$(wc -l < "$out/stubs/symbols.txt") functions of the vendor, $(needed "$out/plugins/libpacer_hccl.so" | grep -cE 'c10d_npu') of torch_npu"
