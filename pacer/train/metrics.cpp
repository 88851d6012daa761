#include "pacer/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0.0; }

// Whether a line of metrics.jsonl belongs to the past that the run continues. A line that is no JSON was torn.
bool belongs(std::string_view line, int64_t step) {
  const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return record.is_object() && record.contains("step") && record["step"].is_number_integer() &&
         record["step"].get<int64_t>() <= step;
}

// An interrupted run may have left half a line, and lines that the continued run will write again.
void heal(const fs::path& file, int64_t step) {
  const std::string content = read_file(file);
  std::string kept;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = content.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line(content.data() + begin, end - begin);
    if (belongs(line, step)) kept.append(line).push_back('\n');
    begin = end + 1;
  }
  if (kept != content) write_file(file, kept);
}

void collect(const std::string& tag, const OrderedJson& value, std::vector<formats::Scalar>& scalars) {
  if (value.is_number()) {
    scalars.push_back({tag, value.get<double>()});
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) collect(tag + "/" + std::to_string(i + 1), value[i], scalars);
  }
}

}  // namespace

OrderedJson metrics_of(const draft::LossTerms& terms, const draft::LossOptions& options) {
  const double ce = ratio(terms.ce_sum, terms.ce_weight), l1 = ratio(terms.l1_sum, terms.l1_weight);
  const double confidence = ratio(terms.confidence_sum, terms.confidence_weight);
  OrderedJson metrics;
  metrics["loss"] = options.ce_alpha * ce + options.l1_alpha * l1 + options.confidence_alpha * confidence;
  if (terms.ce_weight > 0) metrics["ce"] = ce;
  if (terms.l1_weight > 0) metrics["l1"] = l1;
  if (terms.confidence_weight > 0) metrics["confidence"] = confidence;
  std::vector<double> accept;
  int64_t slots = 0;
  for (size_t k = 0; k < terms.accept_sum.size(); ++k) {
    accept.push_back(ratio(terms.accept_sum[k], static_cast<double>(terms.accept_count[k])));
    slots += terms.accept_count[k];
  }
  metrics["accept"] = accept;
  metrics["tau"] = ratio(terms.tau_sum, static_cast<double>(terms.blocks));
  metrics["correct"] = ratio(static_cast<double>(terms.correct), static_cast<double>(slots));
  metrics["coverage"] = ratio(static_cast<double>(terms.label_kept), static_cast<double>(terms.label_total));
  if (terms.confidence_weight > 0) {
    metrics["confidence_error"] = ratio(terms.confidence_abs_error_sum, terms.confidence_weight);
  }
  metrics["blocks"] = terms.blocks;
  return metrics;
}

MetricsLog::MetricsLog(fs::path file, const fs::path& tensorboard, std::optional<int64_t> continued_from)
    : file_(std::move(file)) {
  if (fs::exists(file_)) heal(file_, continued_from.value_or(-1));
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw Error(ErrorKind::resources, file_.string() + ": cannot be opened: " + std::strerror(errno),
                "may this user write there?");
  }
  if (tensorboard.empty()) return;
  const auto resumed_at = continued_from ? std::optional<int64_t>(*continued_from + 1) : std::nullopt;
  tensorboard_ = std::make_unique<formats::TensorBoardWriter>(tensorboard, resumed_at);
}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsLog::append(const OrderedJson& record) {
  const std::string line = record.dump() + "\n";
  write_all(descriptor_, std::as_bytes(std::span(line)), file_);
  const std::string kind = record.at("kind");
  if (tensorboard_ == nullptr || (kind != "train" && kind != "validation")) return;
  std::vector<formats::Scalar> scalars;
  for (const auto& [name, value] : record.items()) {
    if (name != "kind" && name != "step") collect(kind + "/" + name, value, scalars);
  }
  tensorboard_->add(record.at("step"), scalars);
}

void MetricsLog::sync() {
  if (::fsync(descriptor_) != 0) {
    throw Error(ErrorKind::resources, file_.string() + ": fsync failed: " + std::strerror(errno));
  }
}

}  // namespace pacer::train
