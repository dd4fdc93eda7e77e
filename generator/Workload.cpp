//===- generator/Workload.cpp - Parsing and printing workloads --------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/Workload.h"

#include "generator/CanonicalJson.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace lathe;

namespace {

constexpr llvm::StringRef kOp = "fused_linear_simpo_loss";
constexpr int64_t kInt32Max = INT32_MAX;

template <class... Args> llvm::Error invalid(const char* format, Args&&... args) {
  return makeError(ErrorCode::InvalidWorkload, (std::string("workload: ") + format).c_str(),
                   std::forward<Args>(args)...);
}

/// Every boolean field by its JSON name.
struct FlagField {
  llvm::StringRef name;
  bool Workload::* member;
};
constexpr FlagField kFlags[] = {
    {"bias", &Workload::bias},
    {"grad_bias", &Workload::gradBias},
    {"grad_input", &Workload::gradInput},
    {"grad_weight", &Workload::gradWeight},
    {"logit_means", &Workload::logitMeans},
    {"logit_scale", &Workload::logitScale},
    {"nll", &Workload::nll},
    {"softcap", &Workload::softcap},
};
constexpr llvm::StringRef kOtherFields[] = {"dtype",     "grad_weight_dtype", "hidden", "op",
                                            "precision", "sequences",         "tokens", "vocab"};

std::string printed(const llvm::json::Value& value) {
  const std::string text = llvm::formatv("{0}", value);
  // The cut may fall inside a character.
  return text.size() > 60 ? llvm::json::fixUTF8(text.substr(0, 57)) + "..." : text;
}

/// Reads the fields of one JSON object.
class Reader {
public:
  explicit Reader(const llvm::json::Object& object) : object_(object) {}

  llvm::Error rejectUnknown() const {
    for (const auto& entry : object_) {
      const llvm::StringRef name = entry.first;
      if (isKnown(name)) continue;
      return invalid("unknown field \"{0}\"; did you mean \"{1}\"?", name, nearest(name));
    }
    return llvm::Error::success();
  }

  llvm::Expected<int64_t> integer(llvm::StringRef name) const {
    const llvm::json::Value* value = object_.get(name);
    if (!value) return invalid("field \"{0}\" is missing; it must be an integer", name);
    const std::optional<int64_t> result = value->getAsInteger();
    if (!result || value->kind() != llvm::json::Value::Number)
      return invalid("{0} is {1}; it must be an integer", name, printed(*value));
    return *result;
  }

  llvm::Error optionalInteger(llvm::StringRef name, std::optional<int64_t>& out) const {
    if (!object_.get(name)) return llvm::Error::success();
    llvm::Expected<int64_t> value = integer(name);
    if (!value) return value.takeError();
    out = *value;
    return llvm::Error::success();
  }

  llvm::Error flag(llvm::StringRef name, bool& out) const {
    const llvm::json::Value* value = object_.get(name);
    if (!value) return llvm::Error::success();
    const std::optional<bool> result = value->getAsBoolean();
    if (!result) return invalid("{0} is {1}; it must be true or false", name, printed(*value));
    out = *result;
    return llvm::Error::success();
  }

  /// The text of a field; none when it is absent.
  llvm::Expected<std::optional<llvm::StringRef>> text(llvm::StringRef name) const {
    const llvm::json::Value* value = object_.get(name);
    if (!value) return std::nullopt;
    const std::optional<llvm::StringRef> result = value->getAsString();
    if (!result) return invalid("{0} is {1}; it must be a string", name, printed(*value));
    return result;
  }

  template <class Value>
  llvm::Error parsed(llvm::StringRef name, llvm::Expected<Value> (*parse)(llvm::StringRef), Value& out) const {
    llvm::Expected<std::optional<llvm::StringRef>> word = text(name);
    if (!word) return word.takeError();
    if (!*word) return llvm::Error::success();
    llvm::Expected<Value> value = parse(**word);
    if (!value) return invalid("{0}: {1}", name, takeSummary(value.takeError()).message);
    out = *value;
    return llvm::Error::success();
  }

private:
  static bool isKnown(llvm::StringRef name) {
    return llvm::is_contained(kOtherFields, name) ||
           llvm::any_of(kFlags, [&](const FlagField& field) { return field.name == name; });
  }

  static llvm::StringRef nearest(llvm::StringRef name) {
    llvm::StringRef best = kOtherFields[0];
    const auto consider = [&](llvm::StringRef known) {
      if (name.edit_distance(known) < name.edit_distance(best)) best = known;
    };
    llvm::for_each(kOtherFields, consider);
    for (const FlagField& field : kFlags) consider(field.name);
    return best;
  }

  const llvm::json::Object& object_;
};

llvm::Error checkSize(llvm::StringRef name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return llvm::Error::success();
  return invalid("{0} is {1}; it must be from {2} to {3}", name, value, least, most);
}

llvm::Error checkSequences(int64_t sequences) {
  if (sequences >= 2 && sequences % 2 == 0 && sequences <= kInt32Max) return llvm::Error::success();
  return makeError(ErrorCode::InvalidArgument,
                   "sequences is {0}; it must be an even number of at least 2: chosen and rejected in equal parts",
                   sequences);
}

llvm::Error checkTokens(int64_t tokens) {
  if (tokens >= 1 && tokens <= kInt32Max) return llvm::Error::success();
  return makeError(ErrorCode::InvalidArgument, "tokens is {0}; it must be from 1 to {1}", tokens, kInt32Max);
}

llvm::Error checkRows(int64_t sequences, int64_t tokens) {
  if (sequences <= (kInt32Max - 1024) / tokens) return llvm::Error::success();
  return makeError(ErrorCode::InvalidArgument,
                   "{0} sequences of {1} tokens are {2} tokens in all; a run takes fewer than 2^31 - 1024", sequences,
                   tokens, sequences * tokens);
}

} // namespace

llvm::StringRef lathe::toString(DType type) {
  switch (type) {
  case DType::BF16:
    return "bf16";
  case DType::FP16:
    return "fp16";
  case DType::FP32:
    return "fp32";
  }
  llvm_unreachable("unknown dtype");
}

llvm::StringRef lathe::toString(Precision precision) {
  return precision == Precision::IEEE ? "ieee" : "tf32";
}

llvm::Expected<DType> lathe::parseDType(llvm::StringRef text) {
  for (const DType type : {DType::BF16, DType::FP16, DType::FP32})
    if (text == toString(type)) return type;
  return makeError(ErrorCode::InvalidWorkload, "\"{0}\" is not a dtype; it must be bf16, fp16 or fp32", text);
}

llvm::Expected<Precision> lathe::parsePrecision(llvm::StringRef text) {
  for (const Precision precision : {Precision::IEEE, Precision::TF32})
    if (text == toString(precision)) return precision;
  return makeError(ErrorCode::InvalidWorkload, "\"{0}\" is not a precision; it must be ieee or tf32", text);
}

llvm::Error lathe::validate(const Workload& workload) {
  if (llvm::Error error = checkSize("hidden", workload.hidden, 1, kInt32Max - 1024)) return error;
  if (llvm::Error error = checkSize("vocab", workload.vocab, 2, kInt32Max - 1024)) return error;
  if (workload.precision == Precision::TF32 && workload.dtype != DType::FP32)
    return invalid("precision is tf32 with dtype {0}; tf32 is for fp32", toString(workload.dtype));
  if (workload.gradBias && !workload.bias) return invalid("grad_bias is true without a bias; set bias to true");
  if (workload.gradWeightDType != workload.dtype && (!workload.gradWeight || workload.gradWeightDType != DType::FP32))
    return invalid(
        "grad_weight_dtype is {0}; {1}", toString(workload.gradWeightDType),
        workload.gradWeight
            ? llvm::formatv("it must be {0} (as dtype) or fp32", toString(workload.dtype)).str()
            : llvm::formatv("without a weight gradient it must be {0} (as dtype)", toString(workload.dtype)).str());
  if (workload.sequences)
    if (llvm::Error error = checkSequences(*workload.sequences)) return error;
  if (workload.tokens)
    if (llvm::Error error = checkTokens(*workload.tokens)) return error;
  if (workload.sequences && workload.tokens) return checkRows(*workload.sequences, *workload.tokens);
  return llvm::Error::success();
}

llvm::Error lathe::validate(const Workload& workload, const Shape& shape) {
  if (llvm::Error error = checkSequences(shape.sequences)) return error;
  if (llvm::Error error = checkTokens(shape.tokens)) return error;
  if (llvm::Error error = checkRows(shape.sequences, shape.tokens)) return error;
  if (workload.sequences && *workload.sequences != shape.sequences)
    return makeError(ErrorCode::InvalidArgument, "sequences is {0}; the workload is pinned to {1}", shape.sequences,
                     *workload.sequences);
  if (workload.tokens && *workload.tokens != shape.tokens)
    return makeError(ErrorCode::InvalidArgument, "tokens is {0}; the workload is pinned to {1}", shape.tokens,
                     *workload.tokens);
  return llvm::Error::success();
}

llvm::Error lathe::validate(const Workload& workload, const Scalars& scalars) {
  const struct {
    llvm::StringRef name;
    double value;
    bool used;
  } values[] = {
      {"beta", scalars.beta, true},
      {"gamma", scalars.gamma, true},
      {"label_smoothing", scalars.labelSmoothing, true},
      {"alpha", scalars.alpha, workload.nll},
      {"softcap", scalars.softcap, workload.softcap},
      {"logit_scale", scalars.logitScale, workload.logitScale},
  };
  for (const auto& entry : values)
    if (entry.used && !std::isfinite(entry.value))
      return makeError(ErrorCode::InvalidArgument, "{0} is {1}; it must be finite", entry.name, entry.value);
  if (workload.softcap && scalars.softcap <= 0)
    return makeError(ErrorCode::InvalidArgument, "softcap is {0}; it must be positive, as the workload has a soft cap",
                     scalars.softcap);
  if (scalars.labelSmoothing < 0 || scalars.labelSmoothing > 0.5)
    return makeError(ErrorCode::InvalidArgument, "label_smoothing is {0}; it must be from 0 to 0.5",
                     scalars.labelSmoothing);
  return llvm::Error::success();
}

llvm::Expected<Workload> lathe::parseWorkload(llvm::StringRef json) {
  llvm::Expected<llvm::json::Value> value = parseJson(json);
  if (!value) return invalid("cannot be read as JSON: {0}", llvm::toString(value.takeError()));
  return workloadFromJson(*value);
}

llvm::Expected<Workload> lathe::workloadFromJson(const llvm::json::Value& json) {
  const llvm::json::Object* object = json.getAsObject();
  if (!object) return invalid("it is {0}; it must be a JSON object", printed(json));
  const Reader reader(*object);
  if (llvm::Error error = reader.rejectUnknown()) return error;

  llvm::Expected<std::optional<llvm::StringRef>> op = reader.text("op");
  if (!op) return op.takeError();
  if (*op && **op != kOp) return invalid("op is \"{0}\"; it must be \"{1}\"", **op, kOp);

  Workload workload;
  llvm::Expected<int64_t> hidden = reader.integer("hidden");
  if (!hidden) return hidden.takeError();
  workload.hidden = *hidden;
  llvm::Expected<int64_t> vocab = reader.integer("vocab");
  if (!vocab) return vocab.takeError();
  workload.vocab = *vocab;

  if (!object->get("dtype")) return invalid("field \"dtype\" is missing; it must be bf16, fp16 or fp32");
  if (llvm::Error error = reader.parsed("dtype", parseDType, workload.dtype)) return error;
  workload.gradWeightDType = workload.dtype;
  if (llvm::Error error = reader.parsed("grad_weight_dtype", parseDType, workload.gradWeightDType)) return error;
  if (llvm::Error error = reader.parsed("precision", parsePrecision, workload.precision)) return error;
  for (const FlagField& field : kFlags)
    if (llvm::Error error = reader.flag(field.name, workload.*field.member)) return error;
  if (llvm::Error error = reader.optionalInteger("sequences", workload.sequences)) return error;
  if (llvm::Error error = reader.optionalInteger("tokens", workload.tokens)) return error;
  if (llvm::Error error = validate(workload)) return error;
  return workload;
}

llvm::json::Value lathe::toJson(const Workload& workload) {
  llvm::json::Object object{
      {"op", kOp},
      {"hidden", workload.hidden},
      {"vocab", workload.vocab},
      {"dtype", toString(workload.dtype)},
      {"precision", toString(workload.precision)},
      {"grad_weight_dtype", toString(workload.gradWeightDType)},
  };
  for (const FlagField& field : kFlags) object[field.name] = workload.*field.member;
  if (workload.sequences) object["sequences"] = *workload.sequences;
  if (workload.tokens) object["tokens"] = *workload.tokens;
  return object;
}

std::string lathe::canonicalJson(const Workload& workload) {
  // Strings are ASCII and sizes below 2^53, so this cannot fail.
  return llvm::cantFail(canonicalJson(toJson(workload)));
}

Digest lathe::workloadDigest(const Workload& workload) {
  return Digest::of(canonicalJson(workload));
}
