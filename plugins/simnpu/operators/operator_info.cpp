#include "plugins/simnpu/operators/operator_info.h"

#include <unordered_map>

#include <ATen/core/jit_type.h>

#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {
namespace {

OperatorInfo read(const c10::OperatorHandle& op) {
  OperatorInfo info{};
  info.name = intern(toString(op.operator_name()));
  info.has_cpu_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  info.random = op.hasTag(at::Tag::nondeterministic_seeded);
  info.generator = -1;
  const auto& schema = op.schema();
  const auto optional_generator = c10::OptionalType::create(c10::GeneratorType::get());
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.real_type()->isSubtypeOf(*optional_generator)) info.generator = static_cast<int>(i);
    info.written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    info.is_out.push_back(argument.is_out());
  }
  info.random |= info.generator >= 0;
  const auto tensors = c10::ListType::ofTensors();
  for (const c10::Argument& result : schema.returns()) {
    info.returns_values |=
        !result.type()->isSubtypeOf(*c10::TensorType::get()) && !result.type()->isSubtypeOf(*tensors);
    int source = -1;
    if (const c10::AliasInfo* alias = result.alias_info()) {
      info.returns_view |= !alias->isWrite();
      for (size_t i = 0; i < schema.arguments().size() && source < 0; ++i) {
        const c10::AliasInfo* of_argument = schema.arguments()[i].alias_info();
        if (of_argument && *of_argument == *alias) source = static_cast<int>(i);
      }
    }
    info.allocates |= source < 0;
    info.returned.push_back(source);
  }
  return info;
}

}  // namespace

const OperatorInfo& info_of(const c10::OperatorHandle& op) {
  // Never destroyed, and one per thread so that looking up costs no lock.
  thread_local auto* known = new std::unordered_map<c10::OperatorName, OperatorInfo>;
  const auto found = known->find(op.operator_name());
  return found != known->end() ? found->second : known->emplace(op.operator_name(), read(op)).first->second;
}

}  // namespace pacer::simnpu
