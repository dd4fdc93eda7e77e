//===- tests/unit/safetensors_test.cpp - Reading and writing tensors --------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/io/Safetensors.h"
#include "tests/support/Failures.h"
#include "tests/support/ScratchFolder.h"

#include "llvm/Support/Endian.h"

#include <sys/stat.h>

using namespace lathe;
using Catch::Contains;
using lathe::test::require;
using lathe::test::requireError;
using lathe::test::ScratchFolder;

namespace {

std::string withLength(llvm::StringRef header, llvm::StringRef data) {
  char length[8];
  llvm::support::endian::write64le(length, header.size());
  return (llvm::Twine(llvm::StringRef(length, 8)) + header + data).str();
}

llvm::Expected<SafetensorsFile> parse(llvm::StringRef content) {
  return SafetensorsFile::parse(llvm::MemoryBuffer::getMemBufferCopy(content, "some.safetensors"));
}

/// The message for a header with eight bytes of data behind it.
std::string rejection(llvm::StringRef header) {
  const ErrorSummary summary = requireError(parse(withLength(header, "12345678")));
  CHECK(summary.code == ErrorCode::Corrupt);
  CHECK_THAT(summary.message, Contains("some.safetensors"));
  return summary.message;
}

std::string readFile(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  REQUIRE(buffer);
  return (*buffer)->getBuffer().str();
}

} // namespace

TEST_CASE("what the writer writes the reader gives back") {
  const ScratchFolder folder;
  const std::string path = folder.file("a.safetensors");
  const std::string halves("\x80\x3f\x00\xc0", 4);
  SafetensorsWriter writer;
  writer.add("halves", TensorType::BF16, {2, 1}, halves);
  writer.add("odd \"name\" \xc3\xa4", TensorType::I32, {1}, llvm::StringRef("\xfe\xff\xff\xff", 4));
  writer.add("nothing", TensorType::F32, {3, 0}, "");
  writer.addDoubles("scalar", {}, {0.1});
  writer.setMetadata("beta", "0.1");
  writer.setMetadata("gone", "1");
  writer.removeMetadata("gone");
  require(writer.write(path));

  const SafetensorsFile file = require(SafetensorsFile::open(path));
  CHECK(file.metadata() == SafetensorsFile::Metadata{{"beta", "0.1"}});
  CHECK(file.tensors().size() == 4);
  REQUIRE(file.find("halves"));
  CHECK(file.find("halves")->shape == std::vector<int64_t>{2, 1});
  CHECK(require(toDoubles(*file.find("halves"))) == std::vector<double>{1, -2});
  CHECK(require(toIntegers(*file.find("odd \"name\" \xc3\xa4"))) == std::vector<int64_t>{-2});
  CHECK(file.find("nothing")->count() == 0);
  CHECK(require(toDoubles(*file.find("scalar"))) == std::vector<double>{0.1});
  CHECK(file.find("absent") == nullptr);
  CHECK(requireError(toIntegers(*file.find("scalar"))).code == ErrorCode::InvalidArgument);
  CHECK(requireError(toDoubles(*file.find("odd \"name\" \xc3\xa4"))).code == ErrorCode::InvalidArgument);
}

TEST_CASE("the bytes written do not depend on the order of the calls") {
  const ScratchFolder folder;
  SafetensorsWriter forward;
  forward.addDoubles("a", {1}, {1.0});
  forward.add("b", TensorType::F16, {1}, "xy");
  forward.setMetadata("k", "1");
  forward.setMetadata("j", "2");
  SafetensorsWriter backward;
  backward.setMetadata("j", "2");
  backward.setMetadata("k", "1");
  backward.add("b", TensorType::F16, {1}, "xy");
  backward.addDoubles("a", {1}, {1.0});
  require(forward.write(folder.file("f")));
  require(backward.write(folder.file("b")));
  CHECK(readFile(folder.file("f")) == readFile(folder.file("b")));
}

TEST_CASE("writing replaces a file and leaves no temporary behind") {
  const ScratchFolder folder;
  SafetensorsWriter writer;
  require(writer.write(folder.file("a")));
  writer.addDoubles("x", {1}, {1.0});
  require(writer.write(folder.file("a")));
  CHECK(require(SafetensorsFile::open(folder.file("a"))).find("x") != nullptr);
  std::error_code error;
  int files = 0;
  for (llvm::sys::fs::directory_iterator entry(folder.path(), error), end; entry != end; entry.increment(error))
    ++files;
  CHECK(files == 1);
}

TEST_CASE("a path may hold percent signs, which LLVM's unique names replace") {
  const ScratchFolder folder;
  REQUIRE_FALSE(llvm::sys::fs::create_directory(folder.file("50%")));
  require(SafetensorsWriter().write(folder.file("50%/a%20b")));
  CHECK(require(SafetensorsFile::open(folder.file("50%/a%20b"))).tensors().empty());
}

TEST_CASE("a pipe is never replaced by a file") {
  const ScratchFolder folder;
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  const ErrorSummary summary = requireError(SafetensorsWriter().write(folder.file("pipe")));
  CHECK(summary.code == ErrorCode::Io);
  CHECK_THAT(summary.message, Contains(folder.file("pipe")) && Contains("a device or a pipe"));
  llvm::sys::fs::file_status status;
  REQUIRE_FALSE(llvm::sys::fs::status(folder.file("pipe"), status));
  CHECK(status.type() == llvm::sys::fs::file_type::fifo_file);
}

TEST_CASE("a write that cannot take its place leaves no temporary behind") {
  const ScratchFolder folder;
  REQUIRE_FALSE(llvm::sys::fs::create_directory(folder.file("taken")));
  CHECK(requireError(SafetensorsWriter().write(folder.file("taken"))).code == ErrorCode::Io);
  std::error_code error;
  int files = 0;
  for (llvm::sys::fs::directory_iterator entry(folder.path(), error), end; entry != end; entry.increment(error))
    ++files;
  CHECK(files == 1);
}

TEST_CASE("the writer refuses tensors that do not fit their shape") {
  const ScratchFolder folder;
  const auto refused = [&](TensorType type, std::vector<int64_t> shape, llvm::StringRef bytes) {
    SafetensorsWriter writer;
    writer.add("x", type, std::move(shape), bytes);
    const ErrorSummary summary = requireError(writer.write(folder.file("a")));
    CHECK(summary.code == ErrorCode::InvalidArgument);
    CHECK_THAT(summary.message, Contains("\"x\""));
  };
  refused(TensorType::F32, {2}, "1234");
  refused(TensorType::F32, {-1, -1}, "1234");
  refused(TensorType::F32, {int64_t(1) << 62, 4}, "");
  SafetensorsWriter reserved;
  reserved.add("__metadata__", TensorType::F16, {1}, "xy");
  CHECK(requireError(reserved.write(folder.file("a"))).code == ErrorCode::InvalidArgument);
  SafetensorsWriter binary;
  binary.setMetadata("k", "\xff");
  CHECK(requireError(binary.write(folder.file("a"))).code == ErrorCode::InvalidArgument);
  CHECK_FALSE(llvm::sys::fs::exists(folder.file("a")));
}

TEST_CASE("files that cannot be opened or written are I/O errors with their path") {
  const ScratchFolder folder;
  const ErrorSummary missing = requireError(SafetensorsFile::open(folder.file("missing")));
  CHECK(missing.code == ErrorCode::Io);
  CHECK_THAT(missing.message, Contains(folder.file("missing")));
  CHECK(requireError(SafetensorsFile::open(folder.path())).code == ErrorCode::Io);
  // It has no end.
  CHECK(requireError(SafetensorsFile::open("/dev/zero")).code == ErrorCode::Io);
  CHECK(requireError(SafetensorsWriter().write(folder.file("no/such/folder"))).code == ErrorCode::Io);
}

TEST_CASE("a file may be cut anywhere and is then corrupt") {
  const ScratchFolder folder;
  SafetensorsWriter writer;
  writer.addDoubles("x", {2}, {1.0, 2.0});
  writer.setMetadata("k", "v");
  require(writer.write(folder.file("a")));
  const std::string whole = readFile(folder.file("a"));
  require(parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(requireError(parse(llvm::StringRef(whole).take_front(size))).code == ErrorCode::Corrupt);
  }
  CHECK_THAT(requireError(parse(whole + "x")).message, Contains("end at byte 16"));
}

TEST_CASE("a header that is no JSON object is corrupt") {
  CHECK_THAT(rejection(""), Contains("not JSON"));
  CHECK_THAT(rejection("{\"x\":"), Contains("not JSON"));
  CHECK_THAT(rejection("[1]"), Contains("an object is expected"));
  CHECK_THAT(rejection(std::string(100000, '[')), Contains("nests more than"));
  CHECK_THAT(rejection("{\"__metadata__\":{\"k\":1}}"), Contains("\"k\"") && Contains("a string is expected"));
  CHECK_THAT(rejection("{\"__metadata__\":7}"), Contains("7, where an object is expected"));
}

TEST_CASE("a name that an object has twice is corrupt and named") {
  const std::string fields = R"({"dtype":"F16","shape":[4],"data_offsets":[0,8]})";
  CHECK_THAT(rejection("{\"a\":" + fields + ",\"a\":" + fields + "}"), Contains("the header has \"a\" twice"));
  CHECK_THAT(rejection("{\"a\":" + fields + ",\"\\u0061\":" + fields + "}"), Contains("\"a\" twice"));
  CHECK_THAT(rejection("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"},\"a\":" + fields + "}"),
             Contains("\"__metadata__\" has \"k\" twice"));
  CHECK_THAT(rejection(R"({"a":{"dtype":"F32","dtype":"F16","shape":[4],"data_offsets":[0,8]}})"),
             Contains("\"a\" has \"dtype\" twice"));
  CHECK_THAT(rejection("{\"__metadata__\":{},\"__metadata__\":{},\"a\":" + fields + "}"),
             Contains("\"__metadata__\" twice"));
}

TEST_CASE("a name may hold quotes, colons and braces, and stand in two objects") {
  const std::string header =
      R"({"__metadata__":{"a":"x\":{[:","\\":"{"},"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
      R"("dtype":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},"{\":":{"dtype":"F16","shape":[1],"data_offsets":[6,8]}})";
  const SafetensorsFile file = require(parse(withLength(header, "12345678")));
  CHECK(file.tensors().size() == 3);
  CHECK(file.find("{\":"));
  CHECK(file.metadata() == SafetensorsFile::Metadata{{"a", "x\":{[:"}, {"\\", "{"}});
}

TEST_CASE("tensors of types that Lathe does not compute with are listed but not read") {
  const std::pair<const char*, int64_t> types[] = {
      {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I8", 1},  {"I16", 2},
      {"U8", 1},   {"U16", 2},     {"U32", 4},     {"U64", 8},     {"C64", 8},
  };
  for (const auto& [name, bytes] : types) {
    CAPTURE(name);
    const std::string header =
        llvm::formatv(R"({{"x":{{"dtype":"{0}","shape":[{1}],"data_offsets":[0,8]}})", name, 8 / bytes);
    const SafetensorsFile file = require(parse(withLength(header, "12345678")));
    const TensorView* tensor = file.find("x");
    REQUIRE(tensor);
    CHECK(toString(tensor->type) == name);
    CHECK(tensor->count() == 8 / bytes);
    CHECK(tensor->bytes == "12345678");
    CHECK_THAT(requireError(toDoubles(*tensor)).message, Contains(name));
    CHECK_THAT(requireError(toIntegers(*tensor)).message, Contains(name));
  }
}

TEST_CASE("a header length beyond the file is corrupt") {
  std::string content = withLength("{}", "");
  content[7] = '\x7f';
  CHECK_THAT(requireError(parse(content)).message, Contains("header's length"));
}

TEST_CASE("every wrong field of a tensor is corrupt and named") {
  const auto tensor = [](llvm::StringRef fields) { return rejection(("{\"x\":" + fields + "}").str()); };
  CHECK_THAT(tensor("7"), Contains("\"x\" is 7"));
  CHECK_THAT(tensor(R"({"shape":[1],"data_offsets":[0,8]})"), Contains("no dtype"));
  CHECK_THAT(tensor(R"({"dtype":"F8","shape":[8],"data_offsets":[0,8]})"), Contains("\"x\"") && Contains("\"F8\""));
  CHECK_THAT(tensor(R"({"dtype":64,"shape":[1],"data_offsets":[0,8]})"), Contains("dtype 64"));
  CHECK_THAT(tensor(R"({"dtype":"F64","data_offsets":[0,8]})"), Contains("no shape"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":1,"data_offsets":[0,8]})"), Contains("a list is expected"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[-1],"data_offsets":[0,8]})"), Contains("-1 in its shape"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[1.5],"data_offsets":[0,8]})"), Contains("1.5 in its shape"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":["1"],"data_offsets":[0,8]})"), Contains("\"1\" in its shape"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})"), Contains("8 bytes") && Contains("16"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,8]})"),
             Contains("does not fit 64 bits"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[1]})"), Contains("no data_offsets"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[1],"data_offsets":[0]})"), Contains("two integers"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[1],"data_offsets":[8,0]})"), Contains("a begin and an end"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[1],"data_offsets":[8,16]})"),
             Contains("byte 16") && Contains("8 bytes"));
  CHECK_THAT(tensor(R"({"dtype":"F64","shape":[1],"data_offsets":[0,8],"y":1})"), Contains("unknown field \"y\""));
}

TEST_CASE("tensors that overlap, leave a hole or leave bytes over are corrupt") {
  const auto two = [](int aBegin, int aEnd, int bBegin, int bEnd) {
    const auto entry = [](const char* name, int begin, int end) {
      return llvm::formatv("\"{0}\":{{\"dtype\":\"F16\",\"shape\":[{1}],\"data_offsets\":[{2},{3}]}", name,
                           (end - begin) / 2, begin, end)
          .str();
    };
    return rejection(llvm::formatv("{{{0},{1}}", entry("a", aBegin, aEnd), entry("b", bBegin, bEnd)).str());
  };
  CHECK_THAT(two(0, 6, 4, 8), Contains("an overlap") && Contains("\"b\""));
  CHECK_THAT(two(0, 2, 4, 8), Contains("a hole"));
  CHECK_THAT(two(4, 8, 2, 4), Contains("a hole"));
  CHECK_THAT(two(0, 2, 2, 6), Contains("end at byte 6"));
  CHECK_THAT(rejection("{}"), Contains("end at byte 0"));
}

TEST_CASE("tensors at odd addresses are read correctly") {
  const double value = -2.5;
  const std::string header = R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})";
  for (size_t shift = 0; shift < 8; ++shift) {
    const std::string content = withLength(header + std::string(shift, ' '),
                                           llvm::StringRef(reinterpret_cast<const char*>(&value), sizeof(value)));
    const SafetensorsFile file = require(parse(content));
    CHECK(require(toDoubles(*file.find("x"))) == std::vector<double>{value});
  }
}
