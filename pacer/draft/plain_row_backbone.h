// RowBackbone in LibTorch's operators, for devices whose memory the host cannot read.
#pragma once

#include <memory>

#include "pacer/draft/row_backbone.h"

namespace pacer::draft {

// As RowBackbone::make. Bits of a row may depend on what stands beside it: a draft's numbers decide no text.
std::unique_ptr<RowBackbone> make_plain_row_backbone(const DraftConfig& config, const DraftWeights& weights,
                                                     const at::Tensor& head, at::ScalarType dtype, c10::Device device);

}  // namespace pacer::draft
