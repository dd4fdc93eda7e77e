//===- generator/CanonicalJson.cpp - JSON with one spelling -----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/CanonicalJson.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/ConvertUTF.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

using namespace lathe;

namespace {

class Writer {
public:
  llvm::Error write(const llvm::json::Value& value) {
    switch (value.kind()) {
    case llvm::json::Value::Null:
      out_ += "null";
      return llvm::Error::success();
    case llvm::json::Value::Boolean:
      out_ += *value.getAsBoolean() ? "true" : "false";
      return llvm::Error::success();
    case llvm::json::Value::Number:
      return writeNumber(value);
    case llvm::json::Value::String:
      return writeString(*value.getAsString());
    case llvm::json::Value::Array:
      return writeArray(*value.getAsArray());
    case llvm::json::Value::Object:
      return writeObject(*value.getAsObject());
    }
    llvm_unreachable("unknown kind of JSON value");
  }

  std::string take() { return std::move(out_); }

private:
  llvm::Error writeArray(const llvm::json::Array& array) {
    out_ += '[';
    for (size_t i = 0; i < array.size(); ++i) {
      if (i) out_ += ',';
      if (llvm::Error error = write(array[i])) return error;
    }
    out_ += ']';
    return llvm::Error::success();
  }

  llvm::Error writeObject(const llvm::json::Object& object) {
    using Entry = std::pair<llvm::SmallVector<llvm::UTF16>, const llvm::json::Object::value_type*>;
    std::vector<Entry> entries;
    for (const auto& entry : object) {
      llvm::SmallVector<llvm::UTF16> units;
      if (!llvm::convertUTF8ToUTF16String(entry.first, units)) return notUtf8(entry.first);
      entries.emplace_back(std::move(units), &entry);
    }
    llvm::sort(entries, [](const Entry& a, const Entry& b) {
      return std::lexicographical_compare(a.first.begin(), a.first.end(), b.first.begin(), b.first.end());
    });
    out_ += '{';
    for (const Entry& entry : entries) {
      if (out_.back() != '{') out_ += ',';
      if (llvm::Error error = writeString(entry.second->first)) return error;
      out_ += ':';
      if (llvm::Error error = write(entry.second->second)) return error;
    }
    out_ += '}';
    return llvm::Error::success();
  }

  llvm::Error writeString(llvm::StringRef text) {
    if (!llvm::json::isUTF8(text)) return notUtf8(text);
    out_ += '"';
    for (const char c : text) writeCharacter(c);
    out_ += '"';
    return llvm::Error::success();
  }

  void writeCharacter(char c) {
    switch (c) {
    case '"':
      out_ += "\\\"";
      return;
    case '\\':
      out_ += "\\\\";
      return;
    case '\b':
      out_ += "\\b";
      return;
    case '\f':
      out_ += "\\f";
      return;
    case '\n':
      out_ += "\\n";
      return;
    case '\r':
      out_ += "\\r";
      return;
    case '\t':
      out_ += "\\t";
      return;
    default:
      break;
    }
    if (static_cast<unsigned char>(c) >= 0x20) {
      out_ += c;
      return;
    }
    (out_ += "\\u00") += llvm::toHex(llvm::StringRef(&c, 1), /*LowerCase=*/true);
  }

  llvm::Error writeNumber(const llvm::json::Value& value) {
    const double number = *value.getAsNumber();
    if (!std::isfinite(number)) return makeError(ErrorCode::InvalidArgument, "JSON has no number {0}", number);
    if (number < 0) {
      const std::optional<int64_t> integer = value.getAsInteger();
      if (integer && !fitsDouble(0 - static_cast<uint64_t>(*integer))) return inexact(*integer);
    } else if (const std::optional<uint64_t> integer = value.getAsUINT64(); integer && !fitsDouble(*integer)) {
      return inexact(*integer);
    }
    writeDouble(number);
    return llvm::Error::success();
  }

  /// Whether a double holds an integer of this magnitude exactly: its digits from first to last set bit are at most 53.
  static bool fitsDouble(uint64_t magnitude) {
    return llvm::bit_width(magnitude) - llvm::countr_zero(magnitude) <= std::numeric_limits<double>::digits;
  }

  template <class Integer> static llvm::Error inexact(Integer integer) {
    return makeError(ErrorCode::InvalidArgument, "the integer {0} does not fit a double exactly; write it as a string",
                     integer);
  }

  /// The shortest digits that round-trip, laid out as ECMA-262 Number::toString does.
  void writeDouble(double number) {
    char buffer[40];
    const auto result =
        std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(number), std::chars_format::scientific);
    const auto [mantissa, exponentText] = llvm::StringRef(buffer, result.ptr - buffer).split('e');
    std::string digits;
    for (const char c : mantissa)
      if (c != '.') digits += c;
    int exponent = 0;
    llvm::StringRef signedExponent = exponentText;
    signedExponent.consume_front("+");
    signedExponent.getAsInteger(10, exponent);

    if (number < 0) out_ += '-';
    const int count = static_cast<int>(digits.size());
    const int point = exponent + 1;
    if (count <= point && point <= 21) {
      out_ += digits;
      out_.append(static_cast<size_t>(point - count), '0');
    } else if (0 < point && point <= 21) {
      writeSplit(digits, static_cast<size_t>(point));
    } else if (-6 < point && point <= 0) {
      out_ += "0.";
      out_.append(static_cast<size_t>(-point), '0');
      out_ += digits;
    } else {
      writeSplit(digits, 1);
      out_ += exponent < 0 ? "e-" : "e+";
      out_ += std::to_string(std::abs(exponent));
    }
  }

  /// `digits` with a point after the first `whole`, where any follow.
  void writeSplit(llvm::StringRef digits, size_t whole) {
    out_ += digits.take_front(whole);
    if (digits.size() == whole) return;
    out_ += '.';
    out_ += digits.drop_front(whole);
  }

  static llvm::Error notUtf8(llvm::StringRef text) {
    return makeError(ErrorCode::InvalidArgument, "a string is not valid UTF-8: \"{0}\"", llvm::json::fixUTF8(text));
  }

  std::string out_;
};

} // namespace

llvm::Expected<std::string> lathe::canonicalJson(const llvm::json::Value& value) {
  Writer writer;
  if (llvm::Error error = writer.write(value)) return error;
  return writer.take();
}

namespace {

/// The byte at which `text` passes `kDeepestJson` open arrays and objects, or npos.
size_t findTooDeep(llvm::StringRef text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inString && c == '\\') {
      ++i;
    } else if (c == '"') {
      inString = !inString;
    } else if (!inString && (c == '[' || c == '{')) {
      if (++depth > kDeepestJson) return i;
    } else if (!inString && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return llvm::StringRef::npos;
}

} // namespace

llvm::Expected<llvm::json::Value> lathe::parseJson(llvm::StringRef text) {
  if (const size_t at = findTooDeep(text); at != llvm::StringRef::npos)
    return makeError(ErrorCode::InvalidArgument, "arrays and objects are nested more than {0} deep at byte {1}",
                     kDeepestJson, at);
  return llvm::json::parse(text);
}
