//===- runtime/io/Case.cpp - A problem in a file ----------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Case.h"

#include "generator/Workload.h"
#include "runtime/io/Safetensors.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"

#include <functional>

using namespace lathe;

namespace {

struct DTypeName {
  DType dtype;
  TensorType type;
};
constexpr DTypeName kDTypes[] = {
    {DType::BF16, TensorType::BF16}, {DType::FP16, TensorType::F16}, {DType::FP32, TensorType::F32}};

TensorType tensorType(DType dtype) {
  for (const DTypeName& entry : kDTypes)
    if (entry.dtype == dtype) return entry.type;
  llvm_unreachable("unknown dtype");
}

struct ScalarField {
  const char* key;
  double Scalars::* member;
};
constexpr ScalarField kScalars[] = {{"beta", &Scalars::beta},       {"gamma", &Scalars::gamma},
                                    {"alpha", &Scalars::alpha},     {"label_smoothing", &Scalars::labelSmoothing},
                                    {"softcap", &Scalars::softcap}, {"logit_scale", &Scalars::logitScale}};

struct FlagField {
  const char* key;
  bool Workload::* member;
};
constexpr FlagField kFlags[] = {{"compute_nll", &Workload::nll},
                                {"logit_means", &Workload::logitMeans},
                                {"grad_input", &Workload::gradInput},
                                {"grad_weight", &Workload::gradWeight},
                                {"grad_bias", &Workload::gradBias}};

using ShapeOf = std::vector<int64_t> (*)(const Case&);
std::vector<int64_t> inputShape(const Case& value) {
  return {value.shape.sequences, value.shape.tokens, value.workload.hidden};
}
std::vector<int64_t> weightShape(const Case& value) {
  return {value.workload.vocab, value.workload.hidden};
}
std::vector<int64_t> biasShape(const Case& value) {
  return {value.workload.vocab};
}
std::vector<int64_t> targetShape(const Case& value) {
  return {value.shape.sequences, value.shape.tokens};
}
std::vector<int64_t> pairShape(const Case& value) {
  return {value.shape.pairs()};
}

struct ResultScalar {
  const char* name;
  double LossResult::* member;
};
constexpr ResultScalar kResultScalars[] = {{"loss", &LossResult::loss},
                                           {"preference_loss", &LossResult::preferenceLoss},
                                           {"nll_loss", &LossResult::nll},
                                           {"chosen_logits_mean", &LossResult::chosenLogitsMean},
                                           {"rejected_logits_mean", &LossResult::rejectedLogitsMean}};

struct ResultVector {
  const char* name;
  std::vector<double> LossResult::* member;
  ShapeOf shape;
};
constexpr ResultVector kResultVectors[] = {{"chosen_logps", &LossResult::chosenLogps, pairShape},
                                           {"rejected_logps", &LossResult::rejectedLogps, pairShape},
                                           {"per_token_logps", &LossResult::perTokenLogps, targetShape},
                                           {"grad_input", &LossResult::gradInput, inputShape},
                                           {"grad_weight", &LossResult::gradWeight, weightShape},
                                           {"grad_bias", &LossResult::gradBias, biasShape}};
constexpr ResultVector kRewards[] = {{"chosen_rewards", &LossResult::chosenRewards, pairShape},
                                     {"rejected_rewards", &LossResult::rejectedRewards, pairShape}};

/// Turns a safetensors file into a case, part by part.
class CaseReader {
public:
  explicit CaseReader(const SafetensorsFile& file) : file_(file) {}

  llvm::Expected<Case> read();

private:
  template <class... Args> llvm::Error corrupt(const char* format, Args&&... args) const {
    return makeError(ErrorCode::Corrupt, "{0}: {1}", file_.name(),
                     llvm::formatv(format, std::forward<Args>(args)...).str());
  }
  const std::string* metadata(llvm::StringRef key) const {
    const auto found = file_.metadata().find(std::string_view(key));
    return found == file_.metadata().end() ? nullptr : &found->second;
  }

  llvm::Error readSizes();
  llvm::Error readTensors();
  llvm::Error readScalars();
  llvm::Error readOptions();
  llvm::Error readExpected();
  llvm::Error check() const;
  llvm::Expected<const TensorView*> required(llvm::StringRef name, size_t rank) const;
  llvm::Error checkShape(llvm::StringRef name, const TensorView& tensor, const std::vector<int64_t>& wanted) const;
  /// A floating-point tensor of the given shape; none when the file has no such tensor.
  llvm::Expected<std::optional<std::vector<double>>> doubles(const std::string& name,
                                                             const std::vector<int64_t>& shape) const;
  llvm::Error readFlag(const FlagField& field);
  template <class Value>
  llvm::Error readWord(llvm::StringRef key, llvm::Expected<Value> (*parse)(llvm::StringRef), Value& out) const;

  const SafetensorsFile& file_;
  Case case_;
};

llvm::Expected<const TensorView*> CaseReader::required(llvm::StringRef name, size_t rank) const {
  const TensorView* tensor = file_.find(name);
  if (!tensor) return corrupt("tensor \"{0}\" is missing; a case needs input, weight and target", name);
  if (tensor->shape.size() != rank)
    return corrupt("tensor \"{0}\" has shape {1}; it must have {2} dimensions", name, shapeText(tensor->shape), rank);
  return tensor;
}

llvm::Error CaseReader::checkShape(llvm::StringRef name, const TensorView& tensor,
                                   const std::vector<int64_t>& wanted) const {
  if (tensor.shape == wanted) return llvm::Error::success();
  return corrupt("tensor \"{0}\" has shape {1}; input and weight make it {2}", name, shapeText(tensor.shape),
                 shapeText(wanted));
}

llvm::Error CaseReader::readSizes() {
  llvm::Expected<const TensorView*> input = required("input", 3);
  if (!input) return input.takeError();
  llvm::Expected<const TensorView*> weight = required("weight", 2);
  if (!weight) return weight.takeError();
  case_.shape = {(*input)->shape[0], (*input)->shape[1]};
  case_.workload.hidden = (*input)->shape[2];
  case_.workload.vocab = (*weight)->shape[0];
  for (const DTypeName& entry : kDTypes) {
    if (entry.type != (*input)->type) continue;
    case_.workload.dtype = entry.dtype;
    case_.workload.gradWeightDType = entry.dtype;
    return checkShape("weight", **weight, weightShape(case_));
  }
  return corrupt("tensor \"input\" has dtype {0}; it must be BF16, F16 or F32", toString((*input)->type));
}

llvm::Error CaseReader::readTensors() {
  const struct {
    const char* name;
    std::string Case::* bytes;
    ShapeOf shape;
  } tensors[] = {
      {"input", &Case::input, inputShape}, {"weight", &Case::weight, weightShape}, {"bias", &Case::bias, biasShape}};
  for (const auto& entry : tensors) {
    const TensorView* tensor = file_.find(entry.name);
    if (!tensor) continue;
    if (llvm::Error error = checkShape(entry.name, *tensor, entry.shape(case_))) return error;
    if (tensor->type != tensorType(case_.workload.dtype))
      return corrupt("tensor \"{0}\" has dtype {1}; it must be {2}, as the input", entry.name, toString(tensor->type),
                     toString(tensorType(case_.workload.dtype)));
    (case_.*entry.bytes).assign(tensor->bytes.data(), tensor->bytes.size());
  }
  case_.workload.bias = file_.find("bias") != nullptr;

  llvm::Expected<const TensorView*> target = required("target", 2);
  if (!target) return target.takeError();
  if (llvm::Error error = checkShape("target", **target, targetShape(case_))) return error;
  if ((*target)->type != TensorType::I64)
    return corrupt("tensor \"target\" has dtype {0}; it must be I64", toString((*target)->type));
  return toIntegers(**target).moveInto(case_.target);
}

llvm::Error CaseReader::readScalars() {
  for (const ScalarField& field : kScalars) {
    const std::string* text = metadata(field.key);
    if (text && llvm::StringRef(*text).getAsDouble(case_.scalars.*field.member))
      return corrupt("metadata {0} is \"{1}\"; it must be a number", field.key, *text);
  }
  const std::string* ignored = metadata("ignore_index");
  if (ignored && llvm::StringRef(*ignored).getAsInteger(10, case_.scalars.ignoreIndex))
    return corrupt("metadata ignore_index is \"{0}\"; it must be an integer", *ignored);
  return llvm::Error::success();
}

llvm::Error CaseReader::readFlag(const FlagField& field) {
  const std::string* text = metadata(field.key);
  if (!text) return llvm::Error::success();
  if (*text != "true" && *text != "false")
    return corrupt("metadata {0} is \"{1}\"; it must be true or false", field.key, *text);
  case_.workload.*field.member = *text == "true";
  return llvm::Error::success();
}

template <class Value>
llvm::Error CaseReader::readWord(llvm::StringRef key, llvm::Expected<Value> (*parse)(llvm::StringRef),
                                 Value& out) const {
  const std::string* text = metadata(key);
  if (!text) return llvm::Error::success();
  if (llvm::Error error = parse(*text).moveInto(out))
    return corrupt("metadata {0}: {1}", key, takeSummary(std::move(error)).message);
  return llvm::Error::success();
}

llvm::Error CaseReader::readOptions() {
  Workload& workload = case_.workload;
  workload.softcap = case_.scalars.softcap != 0;
  workload.logitScale = metadata("logit_scale") != nullptr;
  workload.gradBias = workload.bias;
  for (const FlagField& field : kFlags)
    if (llvm::Error error = readFlag(field)) return error;
  if (llvm::Error error = readWord("precision", parsePrecision, workload.precision)) return error;
  return readWord("grad_weight_dtype", parseDType, workload.gradWeightDType);
}

llvm::Expected<std::optional<std::vector<double>>> CaseReader::doubles(const std::string& name,
                                                                       const std::vector<int64_t>& shape) const {
  const TensorView* tensor = file_.find(name);
  if (!tensor) return std::nullopt;
  if (llvm::Error error = checkShape(name, *tensor, shape)) return error;
  if (tensor->type != TensorType::F32 && tensor->type != TensorType::F64)
    return corrupt("tensor \"{0}\" has dtype {1}; it must be F32 or F64", name, toString(tensor->type));
  llvm::Expected<std::vector<double>> values = toDoubles(*tensor);
  if (!values) return values.takeError();
  return std::move(*values);
}

llvm::Error CaseReader::readExpected() {
  const bool any = llvm::any_of(
      file_.tensors(), [](const auto& entry) { return llvm::StringRef(entry.first).starts_with("expected."); });
  if (!any) return llvm::Error::success();
  LossResult expected;
  for (const ResultScalar& scalar : kResultScalars) {
    const std::string name = std::string("expected.") + scalar.name;
    llvm::Expected<std::optional<std::vector<double>>> values = doubles(name, {});
    if (!values) return values.takeError();
    if (!*values) return corrupt("tensor \"{0}\" is missing; a case with expected values needs all scalars", name);
    expected.*scalar.member = (*values)->front();
  }
  for (const ResultVector& vector : kResultVectors) {
    llvm::Expected<std::optional<std::vector<double>>> values =
        doubles(std::string("expected.") + vector.name, vector.shape(case_));
    if (!values) return values.takeError();
    if (*values) expected.*vector.member = std::move(**values);
  }
  case_.expected = std::move(expected);
  return llvm::Error::success();
}

llvm::Error CaseReader::check() const {
  const std::function<llvm::Error()> checks[] = {
      [&] { return validate(case_.workload); },
      [&] { return validate(case_.workload, case_.shape); },
      [&] { return validate(case_.workload, case_.scalars); },
  };
  for (const auto& run : checks)
    if (llvm::Error error = run()) return corrupt("{0}", takeSummary(std::move(error)).message);
  return llvm::Error::success();
}

llvm::Expected<Case> CaseReader::read() {
  if (llvm::Error error = readSizes()) return error;
  if (llvm::Error error = readTensors()) return error;
  if (llvm::Error error = readScalars()) return error;
  if (llvm::Error error = readOptions()) return error;
  if (llvm::Error error = check()) return error;
  if (llvm::Error error = readExpected()) return error;
  return std::move(case_);
}

/// The shortest text that reads back as the same number.
std::string exactText(double value) {
  return llvm::formatv("{0}", llvm::json::Value(value));
}

void addMetadata(SafetensorsWriter& writer, const Case& value) {
  const Workload& workload = value.workload;
  for (const ScalarField& field : kScalars) writer.setMetadata(field.key, exactText(value.scalars.*field.member));
  if (!workload.softcap) writer.setMetadata("softcap", "0.0");
  if (!workload.logitScale) writer.removeMetadata("logit_scale");
  writer.setMetadata("ignore_index", std::to_string(value.scalars.ignoreIndex));
  for (const FlagField& field : kFlags) writer.setMetadata(field.key, workload.*field.member ? "true" : "false");
  writer.setMetadata("precision", toString(workload.precision));
  writer.setMetadata("grad_weight_dtype", toString(workload.gradWeightDType));
}

void addResult(SafetensorsWriter& writer, const Case& value, const LossResult& result, const std::string& prefix) {
  for (const ResultScalar& scalar : kResultScalars) writer.addDoubles(prefix + scalar.name, {}, result.*scalar.member);
  for (const ResultVector& vector : kResultVectors)
    if (!(result.*vector.member).empty())
      writer.addDoubles(prefix + vector.name, vector.shape(value), result.*vector.member);
}

} // namespace

llvm::Expected<Case> lathe::loadCase(llvm::StringRef path) {
  llvm::Expected<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.takeError();
  return CaseReader(*file).read();
}

llvm::Error lathe::saveCase(llvm::StringRef path, const Case& value) {
  SafetensorsWriter writer;
  const TensorType type = tensorType(value.workload.dtype);
  addMetadata(writer, value);
  writer.add("input", type, inputShape(value), value.input);
  writer.add("weight", type, weightShape(value), value.weight);
  if (value.workload.bias) writer.add("bias", type, biasShape(value), value.bias);
  const llvm::StringRef target(reinterpret_cast<const char*>(value.target.data()),
                               value.target.size() * sizeof(int64_t));
  writer.add("target", TensorType::I64, targetShape(value), target);
  if (value.expected) addResult(writer, value, *value.expected, "expected.");
  return writer.write(path);
}

llvm::Error lathe::saveResult(llvm::StringRef path, const Case& value, const LossResult& result) {
  SafetensorsWriter writer;
  addMetadata(writer, value);
  addResult(writer, value, result, "");
  for (const ResultVector& reward : kRewards)
    if (!(result.*reward.member).empty()) writer.addDoubles(reward.name, reward.shape(value), result.*reward.member);
  const Diagnostics& diagnostics = result.diagnostics;
  writer.setMetadata("empty_sequences", std::to_string(diagnostics.emptySequences));
  writer.setMetadata("bad_targets", std::to_string(diagnostics.badTargets));
  writer.setMetadata("first_bad_sequence", std::to_string(diagnostics.firstBadSequence));
  writer.setMetadata("first_bad_token", std::to_string(diagnostics.firstBadToken));
  writer.setMetadata("valid_tokens", std::to_string(diagnostics.validTokens));
  return writer.write(path);
}
