//===- runtime/cache/KernelRecord.cpp - What the cache knows of a kernel ----===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/KernelRecord.h"

#include "llvm/Support/SHA256.h"

#include <chrono>
#include <ctime>

using namespace lathe;

namespace {

/// Text and number fields by their JSON name.
struct TextField {
  const char* name;
  std::string KernelRecord::* member;
};
constexpr TextField kTexts[] = {
    {"kind", &KernelRecord::kind},       {"entry", &KernelRecord::entry},
    {"arch", &KernelRecord::arch},       {"nvrtc_version", &KernelRecord::nvrtcVersion},
    {"created", &KernelRecord::created}, {"lathe_version", &KernelRecord::latheVersion},
};
struct NumberField {
  const char* name;
  int64_t KernelRecord::* member;
};
constexpr NumberField kNumbers[] = {
    {"threads", &KernelRecord::threads},
    {"dynamic_shared_bytes", &KernelRecord::dynamicSharedBytes},
    {"static_shared_bytes", &KernelRecord::staticSharedBytes},
    {"registers", &KernelRecord::registers},
    {"local_bytes", &KernelRecord::localBytes},
};
struct DigestField {
  const char* name;
  Digest KernelRecord::* member;
};
constexpr DigestField kDigests[] = {
    {"kernel_digest", &KernelRecord::kernelDigest},
    {"source_digest", &KernelRecord::sourceDigest},
    {"cubin_digest", &KernelRecord::cubinDigest},
    {"text_digest", &KernelRecord::textDigest},
};

constexpr const char* kRecordDigest = "record_digest";

/// The digest of a record's JSON without this digest itself.
Digest digestOfRecord(llvm::json::Object object) {
  object.erase(kRecordDigest);
  return Digest::of(llvm::formatv("{0}", llvm::json::Value(std::move(object))).str());
}

llvm::Error bad(llvm::StringRef field, llvm::StringRef what) {
  return makeError(ErrorCode::Corrupt, "kernel record: {0} is not {1}", field, what);
}

/// The JSON parser recurses; a record has a handful of brackets, so text with many is refused before it is parsed.
bool hasManyBrackets(llvm::StringRef json) {
  constexpr size_t kMost = 256;
  return json.count('[') + json.count('{') > kMost;
}

} // namespace

llvm::json::Value KernelRecord::toJson() const {
  llvm::json::Object object{
      {"cubin_bytes", static_cast<int64_t>(cubinBytes)},
      {"compile_options", llvm::json::Array(compileOptions)},
      {"compile_milliseconds", compileMilliseconds},
  };
  for (const TextField& field : kTexts) object[field.name] = this->*field.member;
  for (const NumberField& field : kNumbers) object[field.name] = this->*field.member;
  for (const DigestField& field : kDigests) object[field.name] = (this->*field.member).text();
  if (config) object["config"] = *config;
  const Digest digest = digestOfRecord(object);
  object[kRecordDigest] = digest.text();
  return object;
}

llvm::Expected<KernelRecord> KernelRecord::parse(llvm::StringRef json) {
  if (hasManyBrackets(json)) return bad("it", "a record: it has more than 256 brackets");
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(json);
  if (!value) return makeError(ErrorCode::Corrupt, "kernel record: {0}", llvm::toString(value.takeError()));
  const llvm::json::Object* object = value->getAsObject();
  if (!object) return bad("it", "a JSON object");

  KernelRecord record;
  for (const TextField& field : kTexts) {
    const auto text = object->getString(field.name);
    if (!text) return bad(field.name, "a string");
    record.*field.member = text->str();
  }
  for (const NumberField& field : kNumbers) {
    const auto number = object->getInteger(field.name);
    if (!number || *number < 0) return bad(field.name, "a number of at least 0");
    record.*field.member = *number;
  }
  for (const DigestField& field : kDigests) {
    llvm::Expected<Digest> digest = Digest::parse(object->getString(field.name).value_or(""));
    if (!digest) {
      llvm::consumeError(digest.takeError());
      return bad(field.name, "a digest");
    }
    record.*field.member = *digest;
  }
  const auto bytes = object->getInteger("cubin_bytes");
  if (!bytes || *bytes <= 0) return bad("cubin_bytes", "a positive number");
  record.cubinBytes = static_cast<uint64_t>(*bytes);
  const auto milliseconds = object->getNumber("compile_milliseconds");
  if (!milliseconds) return bad("compile_milliseconds", "a number");
  record.compileMilliseconds = *milliseconds;
  const llvm::json::Array* options = object->getArray("compile_options");
  if (!options) return bad("compile_options", "an array");
  for (const llvm::json::Value& option : *options) {
    const auto text = option.getAsString();
    if (!text) return bad("compile_options", "an array of strings");
    record.compileOptions.push_back(text->str());
  }
  if (const llvm::json::Value* config = object->get("config")) record.config = *config;
  if (object->getString(kRecordDigest) != digestOfRecord(*object).text())
    return bad(kRecordDigest, "that of the other fields; the record was changed");
  return record;
}

Digest lathe::kernelDigest(const Digest& source, llvm::ArrayRef<std::string> options, llvm::StringRef nvrtcVersion,
                           llvm::StringRef arch) {
  llvm::SHA256 hash;
  // Every part ends with a zero byte, so that no two lists of parts look alike.
  const auto add = [&](llvm::StringRef part) {
    hash.update(part);
    hash.update(llvm::StringRef("\0", 1));
  };
  add(source.hex());
  for (const std::string& option : options) add(option);
  add(nvrtcVersion);
  add(arch);
  return Digest(hash.final());
}

std::string lathe::utcNow() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}
