//===- cli/WorkloadOptions.cpp - A workload from the command line ----------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/WorkloadOptions.h"

#include "cli/Models.h"
#include "generator/Workload.h"
#include "runtime/io/Case.h"
#include "runtime/io/Safetensors.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace lathe;
using namespace lathe::cli;

namespace {

/// The size of a problem whose size nothing says.
constexpr Shape kDefaultShape{.sequences = 4, .tokens = 1024};
/// c where a soft cap is asked for without a value.
constexpr double kDefaultSoftcap = 30;

llvm::Expected<Workload> readWorkload(const std::string& path) {
  if (isDevice(path)) return makeError(ErrorCode::Io, "cannot read the workload {0}: it is a device, not a file", path);
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer) return makeError(ErrorCode::Io, "cannot read the workload {0}: {1}", path, buffer.getError().message());
  llvm::Expected<Workload> workload = parseWorkload((*buffer)->getBuffer());
  if (workload) return workload;
  const ErrorSummary summary = takeSummary(workload.takeError());
  return makeError(summary.code, "{0}: {1}", path == "-" ? "standard input" : path, summary.message);
}

WorkloadInput inputOf(const Model& model) {
  WorkloadInput input;
  input.workload.hidden = model.hidden;
  input.workload.vocab = model.vocab;
  input.workload.softcap = model.softcap.has_value();
  input.scalars.softcap = model.softcap.value_or(0);
  return input;
}

constexpr llvm::StringRef kGradients[] = {"input", "weight", "bias", "none"};

/// Checks `input,weight`; the description is what help and completion show.
CLI::Validator gradientList() {
  const auto check = [](std::string& text) -> std::string {
    llvm::SmallVector<llvm::StringRef> words;
    llvm::StringRef(text).split(words, ',');
    for (const llvm::StringRef word : words)
      if (!llvm::is_contained(kGradients, word))
        return llvm::formatv("\"{0}\" is not a gradient; give input, weight, bias (parted by commas) or none", word);
    return "";
  };
  return {check, "{" + llvm::join(llvm::ArrayRef(kGradients), ",") + "}"};
}

template <class T> void assign(const std::optional<T>& from, T& to) {
  if (from) to = *from;
}

} // namespace

void WorkloadOptions::addTo(CLI::App& verb) {
  addSources(verb);
  addFields(verb);
  addScalars(verb);
}

void WorkloadOptions::addSources(CLI::App& verb) {
  const char* group = "Workload: a start (at most one of these)";
  CLI::Option* file =
      verb.add_option("--workload", workloadFile_, "Workload as JSON; - reads standard input")->type_name("FILE");
  std::vector<std::string> names;
  for (const Model& model : models()) names.push_back(model.name.str());
  CLI::Option* model = verb.add_option("--model", model_, "Output layer of a model")->check(CLI::IsMember(names));
  CLI::Option* own =
      verb.add_option("--case", caseFile_, "Workload, sizes and scalars of a case file")->type_name("FILE");
  file->excludes(model)->excludes(own);
  model->excludes(own);
  for (CLI::Option* option : {file, model, own}) options_.push_back(option->group(group));
}

void WorkloadOptions::addFields(CLI::App& verb) {
  const CLI::IsMember dtypes({"bf16", "fp16", "fp32"});
  const auto keep = [&](CLI::Option* option) { options_.push_back(option->group("Workload: fields")); };
  keep(verb.add_option("--sequences", sequences_, "Sequences, chosen and rejected together (default 4)"));
  keep(verb.add_option("--tokens", tokens_, "Tokens of a sequence (default 1024)"));
  keep(verb.add_option("--hidden", hidden_, "Width of the hidden states"));
  keep(verb.add_option("--vocab", vocab_, "Entries of the vocabulary"));
  keep(verb.add_option("--dtype", dtype_, "Element type (default bf16)")->check(dtypes));
  keep(verb.add_option("--precision", precision_, "Arithmetic of fp32 products (default ieee)")
           ->check(CLI::IsMember({"ieee", "tf32"})));
  keep(verb.add_flag("--bias", bias_, "Add a bias to the logits"));
  keep(verb.add_flag("--softcap", softcap_, "Cap the logits softly: c tanh(z/c)"));
  keep(verb.add_flag("--logit-scale", logitScale_, "Multiply the logits by a scale"));
  keep(verb.add_flag("--no-nll", noNll_, "Leave out the nll term"));
  keep(verb.add_flag("--no-logit-means", noLogitMeans_, "Leave out the mean logits"));
  keep(verb.add_option("--gradients", gradients_, "Gradients to compute, parted by commas (default: all)")
           ->check(gradientList()));
  keep(
      verb.add_option("--grad-weight-dtype", gradWeightDType_, "Element type of the weight's gradient")->check(dtypes));
}

void WorkloadOptions::addScalars(CLI::App& verb) {
  const auto keep = [&](CLI::Option* option) { options_.push_back(option->group("Scalars")); };
  keep(verb.add_option("--beta", beta_, "Reward scale (default 0.1)"));
  keep(verb.add_option("--gamma", gamma_, "Target reward margin (default 0.5)"));
  keep(verb.add_option("--alpha", alpha_, "Weight of the nll term (default 1)"));
  keep(verb.add_option("--label-smoothing", labelSmoothing_, "From 0 to 0.5 (default 0)"));
  keep(verb.add_option("--softcap-value", softcapValue_, "c of the soft cap (default 30); implies --softcap"));
  keep(verb.add_option("--logit-scale-value", logitScaleValue_, "The scale (default 1); implies --logit-scale"));
  keep(verb.add_option("--ignore-index", ignoreIndex_, "Target of tokens that do not count (default -100)"));
}

std::string WorkloadOptions::firstGiven() const {
  for (const CLI::Option* option : options_)
    if (option->count() > 0) return option->get_name();
  return "";
}

llvm::Expected<WorkloadInput> WorkloadOptions::base() const {
  if (workloadFile_) {
    llvm::Expected<Workload> workload = readWorkload(*workloadFile_);
    if (!workload) return workload.takeError();
    return WorkloadInput{*workload, {}, {}};
  }
  if (model_) {
    llvm::Expected<Model> model = findModel(*model_);
    if (!model) return model.takeError();
    return inputOf(*model);
  }
  if (caseFile_) {
    llvm::Expected<Case> value = loadCase(*caseFile_);
    if (!value) return value.takeError();
    return WorkloadInput{value->workload, value->shape, value->scalars};
  }
  return WorkloadInput{};
}

llvm::Expected<WorkloadInput> WorkloadOptions::resolve() const {
  if (!hasBase() && (!hidden_ || !vocab_))
    return makeError(ErrorCode::InvalidArgument,
                     "there is no workload; give --model, --workload or --case, or --hidden and --vocab");
  llvm::Expected<WorkloadInput> input = base();
  if (!input) return input.takeError();
  Workload& workload = input->workload;
  if (llvm::Error error = applyFields(workload)) return error;

  Shape& shape = input->shape;
  if (shape.sequences == 0) shape.sequences = workload.sequences.value_or(kDefaultShape.sequences);
  if (shape.tokens == 0) shape.tokens = workload.tokens.value_or(kDefaultShape.tokens);
  assign(sequences_, shape.sequences);
  assign(tokens_, shape.tokens);
  applyScalars(workload, input->scalars);

  if (llvm::Error error = validate(workload)) return error;
  if (llvm::Error error = validate(workload, shape)) return error;
  if (llvm::Error error = validate(workload, input->scalars)) return error;
  return input;
}

llvm::Error WorkloadOptions::applyFields(Workload& workload) const {
  assign(hidden_, workload.hidden);
  assign(vocab_, workload.vocab);
  workload.bias |= bias_;
  workload.softcap |= softcap_ || softcapValue_;
  workload.logitScale |= logitScale_ || logitScaleValue_;
  workload.nll &= !noNll_;
  workload.logitMeans &= !noLogitMeans_;
  if (llvm::Error error = applyGradients(workload)) return error;
  return applyTypes(workload);
}

llvm::Error WorkloadOptions::applyGradients(Workload& workload) const {
  if (bias_) workload.gradBias = true;
  if (!gradients_) return llvm::Error::success();
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(*gradients_).split(words, ',');
  const auto wanted = [&](llvm::StringRef name) { return llvm::is_contained(words, name); };
  if (wanted("none") && words.size() > 1)
    return makeError(ErrorCode::InvalidArgument, "--gradients is \"{0}\"; give none alone or leave it out",
                     *gradients_);
  workload.gradInput = wanted("input");
  workload.gradWeight = wanted("weight");
  workload.gradBias = wanted("bias");
  return llvm::Error::success();
}

llvm::Error WorkloadOptions::applyTypes(Workload& workload) const {
  if (dtype_) {
    llvm::Expected<DType> dtype = parseDType(*dtype_);
    if (!dtype) return dtype.takeError();
    // The weight's gradient follows unless it was fp32 on purpose.
    if (workload.gradWeightDType == workload.dtype) workload.gradWeightDType = *dtype;
    workload.dtype = *dtype;
  }
  if (precision_) {
    llvm::Expected<Precision> precision = parsePrecision(*precision_);
    if (!precision) return precision.takeError();
    workload.precision = *precision;
  }
  if (!workload.gradWeight) workload.gradWeightDType = workload.dtype;
  if (gradWeightDType_) {
    llvm::Expected<DType> dtype = parseDType(*gradWeightDType_);
    if (!dtype) return dtype.takeError();
    workload.gradWeightDType = *dtype;
  }
  return llvm::Error::success();
}

void WorkloadOptions::applyScalars(const Workload& workload, Scalars& scalars) const {
  if (workload.softcap && scalars.softcap == 0) scalars.softcap = kDefaultSoftcap;
  assign(beta_, scalars.beta);
  assign(gamma_, scalars.gamma);
  assign(alpha_, scalars.alpha);
  assign(labelSmoothing_, scalars.labelSmoothing);
  assign(softcapValue_, scalars.softcap);
  assign(logitScaleValue_, scalars.logitScale);
  assign(ignoreIndex_, scalars.ignoreIndex);
}
