//===- tests/cache/bundle_test.cpp - A cache in one file ------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "generator/Workload.h"
#include "runtime/cache/Bundle.h"
#include "runtime/cache/Tar.h"
#include "runtime/cache/TuningFile.h"
#include "tests/support/CacheSamples.h"
#include "tests/support/RunCommand.h"
#include "tests/support/TuningSamples.h"

using namespace lathe;
using namespace lathe::test;
using Catch::Contains;

namespace {

const Workload kWorkload{.hidden = 4096, .vocab = 128256, .dtype = DType::BF16};

std::string folderIn(llvm::StringRef root) {
  return entryFolder(root, sampleWorkload(), "sm_90a");
}

/// A cache with two kernels, a description and tuning results, some of them still in the journal.
void fillCache(const std::string& root) {
  keep(root, sampleKernel("a"));
  keep(root, sampleKernel("b"));
  TuningDocument document;
  document.plans = {samplePlan("run")};
  document.measurements = {sampleMeasurement("run", 0)};
  const TuningFile file(folderIn(root));
  require(file.fold(document));
  require(file.append(sampleMeasurement("run", 1)));
  require(Cache(root, {}, [](llvm::StringRef) {
          }).storeDocument(workloadDigest(kWorkload), "", "workload.json", canonicalJson(kWorkload)));
  require(TuningFile(entryFolder(root, workloadDigest(kWorkload), "sm_90a")).fold(document));
}

/// A bundle with `files` and a manifest that fits them.
std::string bundleOf(const std::vector<TarFile>& files) {
  llvm::json::Array list;
  for (const TarFile& file : files)
    list.push_back(llvm::json::Object{{"path", file.path},
                                      {"bytes", static_cast<int64_t>(file.contents.size())},
                                      {"sha256", Digest::of(file.contents).hex()}});
  const std::string manifest = llvm::formatv(
      "{0}", llvm::json::Value(llvm::json::Object{{"format", "lathe.bundle/1"}, {"files", std::move(list)}}));
  std::vector<TarFile> all{{"manifest.json", manifest}};
  llvm::append_range(all, files);
  return require(writeTar(all));
}

/// Imports `bytes` into an empty cache; the message of the refusal. Nothing may be left behind.
std::string refusalOf(llvm::StringRef bytes) {
  const ScratchFolder folder;
  writeAll(folder.file("bundle.tar"), bytes);
  const ErrorSummary error = requireError(importBundle(folder.file("cache"), folder.file("bundle.tar")));
  CHECK(error.code == ErrorCode::Corrupt);
  CHECK(namesIn(folder.path()) == std::vector<std::string>{"bundle.tar"});
  return error.message;
}

} // namespace

TEST_CASE("An archive is read as it was written, and the system's tar unpacks it") {
  const std::string longPath = std::string(60, 'a') + "/" + std::string(90, 'b') + "/" + std::string(60, 'c');
  const std::string bytes = require(writeTar({{"empty", ""}, {longPath, "text"}, {"block", std::string(512, 'x')}}));
  const std::vector<TarFile> files = require(readTar(bytes));
  REQUIRE(files.size() == 3);
  CHECK(files[1].path == longPath);
  CHECK(files[1].contents == "text");
  CHECK(files[2].contents.size() == 512);
  CHECK(requireError(writeTar({{std::string(300, 'a'), ""}})).code == ErrorCode::InvalidArgument);

  const ScratchFolder folder;
  writeAll(folder.file("a.tar"), bytes);
  const auto tar = llvm::sys::findProgramByName("tar");
  REQUIRE(tar);
  CHECK(runCommand(*tar, {"-xf", folder.file("a.tar"), "-C", folder.path()}, {}).exitCode == 0);
  CHECK(readAll(folder.file(longPath)) == "text");
}

TEST_CASE("Cut or changed anywhere, an archive is refused or gives other files, and nothing worse") {
  const std::string bytes = require(writeTar({{"first", "one"}, {"second", std::string(700, 'x')}}));
  for (size_t length = 0; length < bytes.size() - 1024; length += 13)
    CHECK(requireError(readTar(llvm::StringRef(bytes).take_front(length))).code == ErrorCode::Corrupt);
  for (size_t at = 0; at < 512; ++at)
    for (const char byte : {'\0', '7', '9', '\xff'}) {
      std::string changed = bytes;
      if (changed[at] == byte) continue;
      changed[at] = byte;
      CHECK(requireError(readTar(changed)).code == ErrorCode::Corrupt);
    }
}

TEST_CASE("A bundle carries kernels and tuning results to another cache") {
  const ScratchFolder folder;
  fillCache(folder.file("from"));
  const Exported exported = require(exportBundle(folder.file("from"), folder.file("a.tar"), ""));
  CHECK(exported.kernels == 2);
  CHECK(exported.results == 2);
  CHECK(exported.refused == 0);
  CHECK(exported.bytes == readAll(folder.file("a.tar")).size());
  require(exportBundle(folder.file("from"), folder.file("b.tar"), ""));
  CHECK(readAll(folder.file("a.tar")) == readAll(folder.file("b.tar")));

  const Merged merged = require(importBundle(folder.file("into"), folder.file("a.tar")));
  CHECK(merged.added == 2);
  CHECK(verifyCache(folder.file("into"), false).empty());
  CHECK(listCache(folder.file("into")).size() == 2);
  CHECK(require(TuningFile(folderIn(folder.file("into"))).readFolded()).measurements.size() == 2);
  CHECK(readAll(entryFolder(folder.file("into"), workloadDigest(kWorkload), "") + "/workload.json") ==
        canonicalJson(kWorkload));
  CHECK(require(importBundle(folder.file("into"), folder.file("a.tar"))).kept == 2);

  CHECK(requireError(exportBundle(folder.file("from"), folder.file("c.tar"), "sm_80")).code ==
        ErrorCode::InvalidArgument);
  CHECK_FALSE(llvm::sys::fs::exists(folder.file("c.tar")));
}

TEST_CASE("Damaged kernels do not get into a bundle") {
  const ScratchFolder folder;
  fillCache(folder.file("from"));
  writeAll(fileOf(folder.file("from"), sampleKernel("a"), ".cubin"), "altered");
  const Exported exported = require(exportBundle(folder.file("from"), folder.file("a.tar"), "sm_90a"));
  CHECK(exported.kernels == 1);
  CHECK(exported.refused == 1);
}

TEST_CASE("A bundle with any byte changed is refused as a whole") {
  const ScratchFolder folder;
  fillCache(folder.file("from"));
  require(exportBundle(folder.file("from"), folder.file("a.tar"), ""));
  const std::string bytes = readAll(folder.file("a.tar"));
  // What lies in the padding between files and after the end mark is nobody's content.
  const std::vector<TarFile> files = require(readTar(bytes));
  for (const TarFile& file : files) {
    const size_t at = static_cast<size_t>(file.contents.data() - bytes.data());
    for (size_t i = 0; i < file.contents.size(); i += 1 + file.contents.size() / 7) {
      std::string changed = bytes;
      changed[at + i] ^= 1;
      refusalOf(changed);
    }
    std::string renamed = bytes;
    renamed[at - 512] ^= 1;
    refusalOf(renamed);
  }
  for (const size_t length : {size_t(0), size_t(511), bytes.size() / 2, bytes.size() - 1024})
    refusalOf(llvm::StringRef(bytes).take_front(length));
}

TEST_CASE("Paths that lead elsewhere, links and strangers are refused even where the manifest fits") {
  const std::string workload = canonicalJson(kWorkload);
  const std::string hex = workloadDigest(kWorkload).hex();
  for (const std::string& path :
       {std::string("../escape"), std::string("/tmp/escape"), "v1/../" + hex + "/workload.json",
        "v1/" + hex + "/../../escape", "v1/" + hex + "/sm_90a/../plan.json", "v1/" + hex + "/sm_90a/notes.txt",
        "v1/" + hex + "/workload.json/", "v1//" + hex + "/workload.json", "v2/" + hex + "/workload.json",
        "v1/" + hex + "/sm_90a/" + hex + ".so", std::string("v1"), std::string("workload.json")}) {
    CAPTURE(path);
    CHECK_THAT(refusalOf(bundleOf({{path, workload}})), Contains("none of a cache"));
  }
  std::string link = bundleOf({{"v1/" + hex + "/workload.json", workload}});
  const std::string good = link;
  // The second header becomes that of a link, with the checksum that belongs to it.
  const size_t header = 512 + (require(readTar(good))[0].contents.size() + 511) / 512 * 512;
  link[header + 156] = '2';
  std::snprintf(&link[header + 148], 8, "%06o", [&] {
    unsigned sum = 8 * ' ';
    for (size_t i = 0; i < 512; ++i)
      if (i < 148 || i >= 156) sum += static_cast<unsigned char>(link[header + i]);
    return sum;
  }());
  CHECK_THAT(refusalOf(link), Contains("no plain file"));

  const ScratchFolder folder;
  writeAll(folder.file("good.tar"), good);
  require(importBundle(folder.file("cache"), folder.file("good.tar")));
  CHECK(readAll(folder.file("cache/v1/" + hex + "/workload.json")) == workload);
}

TEST_CASE("What is in a bundle must be what its path says") {
  const std::string hex = workloadDigest(kWorkload).hex();
  Workload other = kWorkload;
  other.vocab = 7;
  CHECK_THAT(refusalOf(bundleOf({{"v1/" + hex + "/workload.json", canonicalJson(other)}})),
             Contains("another workload"));
  CHECK_THAT(refusalOf(bundleOf({{"v1/" + hex + "/sm_90a/plan.json", "{}"}})), Contains("tuning results"));
  CHECK_THAT(refusalOf(bundleOf({{"v1/" + hex + "/sm_90a/" + hex + ".cubin", "code"}})), Contains("lacks its .json"));
  const CachedKernel kernel = sampleKernel("a");
  const std::string base = "v1/" + hex + "/sm_90a/" + kernel.record.kernelDigest.hex();
  const std::string record = llvm::formatv("{0}", kernel.record.toJson());
  CHECK_THAT(refusalOf(bundleOf({{base + ".cu", kernel.source}, {base + ".cubin", "other"}, {base + ".json", record}})),
             Contains("cubin"));
  const std::string twice = require(writeTar(
      {{"manifest.json", "{\"format\": \"lathe.bundle/1\", \"files\": []}"}, {"v1/" + hex + "/workload.json", "x"}}));
  CHECK_THAT(refusalOf(twice), Contains("not in its manifest"));
  CHECK_THAT(refusalOf(require(writeTar({{"manifest.json", "{}"}}))), Contains("format"));
  CHECK_THAT(refusalOf(require(writeTar({}))), Contains("begin with a manifest"));
  CHECK(requireError(importBundle("/tmp", "/nonexistent.tar")).code == ErrorCode::Io);
  CHECK(requireError(importBundle("/tmp", "/dev/null")).code == ErrorCode::Corrupt);
}
