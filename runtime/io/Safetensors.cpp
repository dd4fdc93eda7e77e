//===- runtime/io/Safetensors.cpp - Tensors in files ------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Safetensors.h"

#include "runtime/io/HalfTypes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <optional>

using namespace lathe;

namespace {

constexpr size_t kLengthBytes = 8;
/// The format's own limit; a longer header is an attack or a foreign file.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr llvm::StringRef kMetadataKey = "__metadata__";

struct TypeInfo {
  llvm::StringLiteral name;
  int64_t bytes;
};
/// By `TensorType`.
constexpr TypeInfo kTypes[] = {
    {"BF16", 2}, {"F16", 2},     {"F32", 4},     {"F64", 8},     {"I32", 4}, {"I64", 8},
    {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I8", 1},  {"I16", 2},
    {"U8", 1},   {"U16", 2},     {"U32", 4},     {"U64", 8},     {"C64", 8},
};
static_assert(std::size(kTypes) == size_t(TensorType::C64) + 1);

const TypeInfo& infoOf(TensorType type) {
  return kTypes[static_cast<size_t>(type)];
}

/// A value as messages show it: short, whatever the file holds.
std::string printed(const llvm::json::Value& value) {
  std::string text = llvm::formatv("{0}", value);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::string quoted(llvm::StringRef text) {
  return printed(llvm::json::Value(llvm::json::fixUTF8(text)));
}

/// Names the file in every message.
class HeaderReader {
public:
  HeaderReader(llvm::StringRef file, llvm::StringRef data) : file_(file), data_(data) {}

  llvm::Expected<TensorView> tensor(llvm::StringRef name, const llvm::json::Value& value) const;
  llvm::Error metadata(const llvm::json::Value& value, SafetensorsFile::Metadata& out) const;
  /// Every byte of the data must belong to exactly one tensor.
  llvm::Error checkCoverage(const SafetensorsFile::Tensors& tensors) const;

private:
  template <class... Args> llvm::Error corrupt(const char* format, Args&&... args) const {
    return makeError(ErrorCode::Corrupt, "{0}: {1}; the file is damaged or was not written as safetensors", file_,
                     llvm::formatv(format, std::forward<Args>(args)...).str());
  }

  llvm::Expected<TensorType> type(llvm::StringRef name, const llvm::json::Object& entry) const;
  llvm::Expected<std::vector<int64_t>> shape(llvm::StringRef name, const llvm::json::Object& entry) const;
  llvm::Expected<llvm::StringRef> bytes(llvm::StringRef name, const llvm::json::Object& entry) const;
  llvm::Error checkSize(llvm::StringRef name, const TensorView& view) const;

  llvm::StringRef file_;
  llvm::StringRef data_;
};

/// An integer that is zero or more; JSON's 1e3 or 2.0 do not count as one when they are not whole.
std::optional<int64_t> naturalNumber(const llvm::json::Value& value) {
  if (value.kind() != llvm::json::Value::Number) return std::nullopt;
  const std::optional<int64_t> number = value.getAsInteger();
  if (!number || *number < 0) return std::nullopt;
  return number;
}

llvm::Expected<TensorType> HeaderReader::type(llvm::StringRef name, const llvm::json::Object& entry) const {
  const llvm::json::Value* value = entry.get("dtype");
  if (!value) return corrupt("tensor {0} has no dtype", quoted(name));
  const std::optional<llvm::StringRef> text = value->getAsString();
  const auto* found = llvm::find_if(kTypes, [&](const TypeInfo& info) { return text && *text == info.name; });
  if (found == std::end(kTypes))
    return corrupt("tensor {0} has dtype {1}, where one of {2} is expected", quoted(name), printed(*value),
                   llvm::join(llvm::map_range(kTypes, [](const TypeInfo& info) { return info.name; }), ", "));
  return static_cast<TensorType>(found - kTypes);
}

llvm::Expected<std::vector<int64_t>> HeaderReader::shape(llvm::StringRef name, const llvm::json::Object& entry) const {
  const llvm::json::Value* value = entry.get("shape");
  if (!value) return corrupt("tensor {0} has no shape", quoted(name));
  const llvm::json::Array* array = value->getAsArray();
  if (!array) return corrupt("tensor {0} has shape {1}, where a list is expected", quoted(name), printed(*value));
  std::vector<int64_t> shape;
  for (const llvm::json::Value& extent : *array) {
    const std::optional<int64_t> number = naturalNumber(extent);
    if (!number)
      return corrupt("tensor {0} has {1} in its shape, where an integer of at least 0 is expected", quoted(name),
                     printed(extent));
    shape.push_back(*number);
  }
  return shape;
}

llvm::Expected<llvm::StringRef> HeaderReader::bytes(llvm::StringRef name, const llvm::json::Object& entry) const {
  const llvm::json::Value* value = entry.get("data_offsets");
  if (!value) return corrupt("tensor {0} has no data_offsets", quoted(name));
  const llvm::json::Array* array = value->getAsArray();
  if (!array || array->size() != 2)
    return corrupt("tensor {0} has data_offsets {1}, where two integers are expected", quoted(name), printed(*value));
  const std::optional<int64_t> begin = naturalNumber((*array)[0]);
  const std::optional<int64_t> end = naturalNumber((*array)[1]);
  if (!begin || !end || *begin > *end)
    return corrupt("tensor {0} has data_offsets {1}, where a begin and an end are expected", quoted(name),
                   printed(*value));
  if (static_cast<uint64_t>(*end) > data_.size())
    return corrupt("tensor {0} ends at byte {1} of the data, which has {2} bytes", quoted(name), *end, data_.size());
  return data_.slice(*begin, *end);
}

/// Bytes of a tensor; none when the product does not fit 64 bits.
std::optional<int64_t> byteCount(TensorType type, llvm::ArrayRef<int64_t> shape) {
  int64_t bytes = sizeOf(type);
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return bytes;
}

llvm::Error HeaderReader::checkSize(llvm::StringRef name, const TensorView& view) const {
  const std::optional<int64_t> wanted = byteCount(view.type, view.shape);
  if (!wanted)
    return corrupt("tensor {0} has shape {1}, whose size does not fit 64 bits", quoted(name), shapeText(view.shape));
  if (static_cast<uint64_t>(*wanted) != view.bytes.size())
    return corrupt("tensor {0} has {1} bytes, but {2} of shape {3} needs {4}", quoted(name), view.bytes.size(),
                   toString(view.type), shapeText(view.shape), *wanted);
  return llvm::Error::success();
}

llvm::Expected<TensorView> HeaderReader::tensor(llvm::StringRef name, const llvm::json::Value& value) const {
  const llvm::json::Object* entry = value.getAsObject();
  if (!entry) return corrupt("tensor {0} is {1}, where an object is expected", quoted(name), printed(value));
  for (const auto& field : *entry)
    if (!llvm::is_contained({"dtype", "shape", "data_offsets"}, llvm::StringRef(field.first)))
      return corrupt("tensor {0} has an unknown field {1}", quoted(name), quoted(field.first));
  TensorView view;
  if (llvm::Error error = type(name, *entry).moveInto(view.type)) return error;
  if (llvm::Error error = shape(name, *entry).moveInto(view.shape)) return error;
  if (llvm::Error error = bytes(name, *entry).moveInto(view.bytes)) return error;
  if (llvm::Error error = checkSize(name, view)) return error;
  return view;
}

llvm::Error HeaderReader::metadata(const llvm::json::Value& value, SafetensorsFile::Metadata& out) const {
  const llvm::json::Object* entries = value.getAsObject();
  if (!entries) return corrupt("{0} is {1}, where an object is expected", kMetadataKey, printed(value));
  for (const auto& entry : *entries) {
    const std::optional<llvm::StringRef> text = entry.second.getAsString();
    if (!text)
      return corrupt("{0} has {1} for {2}, where a string is expected", kMetadataKey, printed(entry.second),
                     quoted(entry.first));
    out.emplace(entry.first.str(), text->str());
  }
  return llvm::Error::success();
}

llvm::Error HeaderReader::checkCoverage(const SafetensorsFile::Tensors& tensors) const {
  std::vector<const SafetensorsFile::Tensors::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  const auto range = [&](const auto* entry) {
    const size_t begin = entry->second.bytes.data() - data_.data();
    return std::pair(begin, begin + entry->second.bytes.size());
  };
  llvm::sort(order, [&](const auto* a, const auto* b) {
    return range(a) != range(b) ? range(a) < range(b) : a->first < b->first;
  });
  size_t end = 0;
  for (const auto* entry : order) {
    const auto [begin, next] = range(entry);
    if (begin != end)
      return corrupt("tensor {0} begins at byte {1} of the data, where byte {2} is expected: there is {3}",
                     quoted(entry->first), begin, end, begin < end ? "an overlap" : "a hole");
    end = next;
  }
  if (end != data_.size())
    return corrupt("the tensors end at byte {0} of the data, which has {1} bytes", end, data_.size());
  return llvm::Error::success();
}

/// The header's text; the data follows it.
llvm::Expected<llvm::StringRef> headerText(llvm::StringRef file, llvm::StringRef content) {
  const char* advice = "the file is truncated or is not safetensors";
  if (content.size() < kLengthBytes)
    return makeError(ErrorCode::Corrupt, "{0}: it has {1} bytes, fewer than the 8 of the header's length; {2}", file,
                     content.size(), advice);
  const uint64_t length = llvm::support::endian::read64le(content.data());
  if (length > kMaxHeaderBytes || length > content.size() - kLengthBytes)
    return makeError(ErrorCode::Corrupt,
                     "{0}: the header's length is {1}, but {2} bytes follow and {3} are the most; {4}", file, length,
                     content.size() - kLengthBytes, kMaxHeaderBytes, advice);
  return content.substr(kLengthBytes, length);
}

/// The JSON text that begins at `text[begin]`, with both quotes; what is left of `text` when the last one is missing.
llvm::StringRef jsonText(llvm::StringRef text, size_t begin) {
  size_t end = begin + 1;
  while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
  return text.slice(begin, end + 1);
}

/// JSON's parser recurses; a valid header has three levels, so deeper nesting is refused before it is parsed.
llvm::Error checkDepth(llvm::StringRef file, llvm::StringRef text) {
  constexpr int kMaxDepth = 16;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') i += jsonText(text, i).size() - 1;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMaxDepth)
      return makeError(ErrorCode::Corrupt,
                       "{0}: the header nests more than {1} levels at byte {2}; it is not safetensors", file, kMaxDepth,
                       i);
  }
  return llvm::Error::success();
}

/// JSON's parser keeps the last of two equal names in silence. `text` must be valid JSON.
llvm::Error checkNames(llvm::StringRef file, llvm::StringRef text) {
  struct OpenObject {
    llvm::StringSet<> names;
    std::string last;
  };
  std::vector<OpenObject> open;
  llvm::StringRef token;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      token = jsonText(text, i);
      i += token.size() - 1;
    }
    if (c == '{') open.emplace_back();
    if (c == '}') open.pop_back();
    if (c != ':') continue;
    // Compared without their escapes: "a" and "\u0061" are one name.
    const llvm::json::Value name = llvm::cantFail(llvm::json::parse(token));
    open.back().last = name.getAsString()->str();
    if (open.back().names.insert(open.back().last).second) continue;
    const std::string where = open.size() > 1 ? "the entry " + quoted(open[open.size() - 2].last) : "the header";
    return makeError(ErrorCode::Corrupt,
                     "{0}: {1} has {2} twice; the file is damaged or was not written as safetensors", file, where,
                     quoted(open.back().last));
  }
  return llvm::Error::success();
}

llvm::Expected<llvm::json::Value> parseHeader(llvm::StringRef file, llvm::StringRef text) {
  if (llvm::Error error = checkDepth(file, text)) return error;
  llvm::Expected<llvm::json::Value> header = llvm::json::parse(text);
  if (!header)
    return makeError(ErrorCode::Corrupt, "{0}: the header is not JSON ({1}); the file is damaged or is not safetensors",
                     file, llvm::toString(header.takeError()));
  if (!header->getAsObject())
    return makeError(ErrorCode::Corrupt, "{0}: the header is {1}, where an object is expected; it is not safetensors",
                     file, printed(*header));
  if (llvm::Error error = checkNames(file, text)) return error;
  return header;
}

template <class Stored, class Result, class Convert>
std::vector<Result> converted(llvm::StringRef bytes, Convert convert) {
  std::vector<Result> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

template <class Result, class Stored> Result widened(Stored value) {
  return static_cast<Result>(value);
}

} // namespace

llvm::StringRef lathe::toString(TensorType type) {
  return infoOf(type).name;
}

int64_t lathe::sizeOf(TensorType type) {
  return infoOf(type).bytes;
}

std::string lathe::shapeText(llvm::ArrayRef<int64_t> shape) {
  return "[" + llvm::join(llvm::map_range(shape, [](int64_t extent) { return std::to_string(extent); }), ", ") + "]";
}

llvm::Expected<std::vector<double>> lathe::toDoubles(const TensorView& tensor) {
  switch (tensor.type) {
  case TensorType::BF16:
    return converted<uint16_t, double>(tensor.bytes, bf16ToFloat);
  case TensorType::F16:
    return converted<uint16_t, double>(tensor.bytes, fp16ToFloat);
  case TensorType::F32:
    return converted<float, double>(tensor.bytes, widened<double, float>);
  case TensorType::F64:
    return converted<double, double>(tensor.bytes, widened<double, double>);
  default:
    return makeError(ErrorCode::InvalidArgument,
                     "a tensor of dtype {0} was asked for as floating point; "
                     "BF16, F16, F32 or F64 is needed",
                     toString(tensor.type));
  }
}

llvm::Expected<std::vector<int64_t>> lathe::toIntegers(const TensorView& tensor) {
  switch (tensor.type) {
  case TensorType::I32:
    return converted<int32_t, int64_t>(tensor.bytes, widened<int64_t, int32_t>);
  case TensorType::I64:
    return converted<int64_t, int64_t>(tensor.bytes, widened<int64_t, int64_t>);
  default:
    return makeError(ErrorCode::InvalidArgument,
                     "a tensor of dtype {0} was asked for as integers; "
                     "I32 or I64 is needed",
                     toString(tensor.type));
  }
}

bool lathe::isDevice(llvm::StringRef path) {
  using llvm::sys::fs::file_type;
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status)) return false;
  return status.type() == file_type::character_file || status.type() == file_type::block_file;
}

llvm::Expected<SafetensorsFile> SafetensorsFile::open(llvm::StringRef path) {
  if (isDevice(path))
    return makeError(ErrorCode::Io, "{0}: cannot be read: it is a device, not a file; check the path", path);
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer =
      llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return makeError(ErrorCode::Io, "{0}: cannot be read: {1}; check the path and its permissions", path,
                     buffer.getError().message());
  return parse(std::move(*buffer));
}

llvm::Expected<SafetensorsFile> SafetensorsFile::parse(std::unique_ptr<llvm::MemoryBuffer> buffer) {
  const llvm::StringRef file = buffer->getBufferIdentifier();
  const llvm::StringRef content = buffer->getBuffer();
  llvm::Expected<llvm::StringRef> text = headerText(file, content);
  if (!text) return text.takeError();
  llvm::Expected<llvm::json::Value> header = parseHeader(file, *text);
  if (!header) return header.takeError();

  const HeaderReader reader(file, content.drop_front(kLengthBytes + text->size()));
  Tensors tensors;
  Metadata metadata;
  for (const auto& entry : *header->getAsObject()) {
    if (llvm::StringRef(entry.first) == kMetadataKey) {
      if (llvm::Error error = reader.metadata(entry.second, metadata)) return error;
      continue;
    }
    TensorView view;
    if (llvm::Error error = reader.tensor(entry.first, entry.second).moveInto(view)) return error;
    tensors.emplace(entry.first.str(), std::move(view));
  }
  if (llvm::Error error = reader.checkCoverage(tensors)) return error;
  return SafetensorsFile(std::move(buffer), std::move(tensors), std::move(metadata));
}

const TensorView* SafetensorsFile::find(llvm::StringRef name) const {
  const auto found = tensors_.find(std::string_view(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

void SafetensorsWriter::add(llvm::StringRef name, TensorType type, std::vector<int64_t> shape, llvm::StringRef bytes) {
  tensors_.insert_or_assign(name.str(), TensorView{type, std::move(shape), bytes});
}

void SafetensorsWriter::addDoubles(llvm::StringRef name, std::vector<int64_t> shape, llvm::ArrayRef<double> values) {
  std::string& copy = owned_[name.str()];
  copy.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  add(name, TensorType::F64, std::move(shape), copy);
}

void SafetensorsWriter::setMetadata(llvm::StringRef key, llvm::StringRef value) {
  metadata_[key.str()] = value.str();
}

void SafetensorsWriter::removeMetadata(llvm::StringRef key) {
  metadata_.erase(key.str());
}

namespace {

using Entry = std::pair<const std::string, TensorView>;

llvm::Error checkEntry(const Entry& entry) {
  if (!llvm::json::isUTF8(entry.first) || entry.first == kMetadataKey)
    return makeError(ErrorCode::InvalidArgument, "{0} cannot name a tensor; use UTF-8 other than {1}",
                     quoted(entry.first), kMetadataKey);
  const TensorView& view = entry.second;
  const bool negative = llvm::any_of(view.shape, [](int64_t extent) { return extent < 0; });
  const std::optional<int64_t> bytes = byteCount(view.type, view.shape);
  if (!negative && bytes && static_cast<uint64_t>(*bytes) == view.bytes.size()) return llvm::Error::success();
  return makeError(ErrorCode::InvalidArgument,
                   "tensor {0} has {1} bytes, which is not {2} of shape {3}; "
                   "pass all of its elements",
                   quoted(entry.first), view.bytes.size(), toString(view.type), shapeText(view.shape));
}

/// The length and the header, padded with spaces so that the data is aligned to 8 bytes.
std::string headerBytes(llvm::ArrayRef<const Entry*> order,
                        const std::map<std::string, std::string, std::less<>>& metadata) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os);
  json.object([&] {
    if (!metadata.empty())
      json.attributeObject(kMetadataKey, [&] {
        for (const auto& [key, value] : metadata) json.attribute(key, value);
      });
    int64_t offset = 0;
    for (const Entry* entry : order) {
      const auto& [name, view] = *entry;
      const int64_t end = offset + static_cast<int64_t>(view.bytes.size());
      json.attributeObject(name, [&] {
        json.attribute("dtype", toString(view.type));
        json.attribute("shape", llvm::json::Array(view.shape));
        json.attribute("data_offsets", llvm::json::Array{offset, end});
      });
      offset = end;
    }
  });
  os.flush();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  char length[kLengthBytes];
  llvm::support::endian::write64le(length, text.size());
  return std::string(length, kLengthBytes) + text;
}

/// An open file.
struct Temporary {
  std::string path;
  int descriptor = -1;
};

/// Creates a file with a new name beside `path`. LLVM's own unique names are of no use here: they replace every `%` of
/// the path.
llvm::Expected<Temporary> createBeside(llvm::StringRef path) {
  constexpr int kAttempts = 100;
  std::error_code code;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Temporary file{llvm::formatv("{0}.{1:x-8}.tmp", path, llvm::sys::Process::GetRandomNumber())};
    code =
        llvm::sys::fs::openFileForWrite(file.path, file.descriptor, llvm::sys::fs::CD_CreateNew, llvm::sys::fs::OF_None,
                                        llvm::sys::fs::all_read | llvm::sys::fs::owner_write);
    if (!code) return file;
    if (code != std::errc::file_exists) break;
  }
  return llvm::errorCodeToError(code);
}

} // namespace

llvm::Error SafetensorsWriter::write(llvm::StringRef path) const {
  std::vector<const Entry*> order;
  for (const Entry& entry : tensors_) {
    if (llvm::Error error = checkEntry(entry)) return error;
    order.push_back(&entry);
  }
  for (const auto& [key, value] : metadata_)
    if (!llvm::json::isUTF8(key) || !llvm::json::isUTF8(value))
      return makeError(ErrorCode::InvalidArgument, "metadata {0} is not UTF-8; safetensors keeps text only",
                       quoted(key));
  llvm::sort(order, [](const Entry* a, const Entry* b) {
    return std::pair(-sizeOf(a->second.type), llvm::StringRef(a->first)) <
           std::pair(-sizeOf(b->second.type), llvm::StringRef(b->first));
  });

  const auto failure = [&](const std::string& reason) {
    return makeError(ErrorCode::Io, "{0}: cannot be written: {1}; check the folder, its permissions and free space",
                     path, reason);
  };
  llvm::sys::fs::file_status status;
  if (!llvm::sys::fs::status(path, status) && llvm::sys::fs::is_other(status))
    return failure("it is a device or a pipe, not a file");
  llvm::Expected<Temporary> file = createBeside(path);
  if (!file) return failure(llvm::toString(file.takeError()));
  // The file goes when writing fails, and when the process is interrupted.
  const llvm::FileRemover remover(file->path);
  llvm::sys::RemoveFileOnSignal(file->path);
  const auto forget = llvm::make_scope_exit([&] { llvm::sys::DontRemoveFileOnSignal(file->path); });
  llvm::raw_fd_ostream os(file->descriptor, /*shouldClose=*/true);
  os << headerBytes(order, metadata_);
  for (const Entry* entry : order) os << entry->second.bytes;
  os.close();
  if (os.has_error()) {
    const std::string reason = os.error().message();
    os.clear_error();
    return failure(reason);
  }
  if (const std::error_code code = llvm::sys::fs::rename(file->path, path)) return failure(code.message());
  return llvm::Error::success();
}
