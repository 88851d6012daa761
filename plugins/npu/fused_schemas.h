// The operators of torch_npu 2.13 that Pacer uses, as its library declares them. The simulator declares the same.
#pragma once

namespace pacer::npu {

inline constexpr const char* kRmsNormSchema =
    "npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)";
inline constexpr const char* kSwigluSchema = "npu_swiglu(Tensor input, int dim=-1) -> Tensor";
inline constexpr const char* kRotaryMulSchema =
    "npu_rotary_mul(Tensor input, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? rotate=None) -> Tensor";
inline constexpr const char* kFusionAttentionSchema =
    "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
    "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
    "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
    "bool sync=False, str softmax_layout=\"\", Tensor? sink=None, Tensor? dropout_mask=None, int seed=0, "
    "int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)";

}  // namespace pacer::npu
