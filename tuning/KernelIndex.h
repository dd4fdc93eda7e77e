//===- tuning/KernelIndex.h - Records of benchmark runs ---------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
///
/// \file
/// Benchmark results as KernelIndex manifests (`kernelindex.dev/v1alpha1`): a run, the protocol and the environment
/// that it names by digest. Every digest is the SHA-256 of a document's canonical JSON (RFC 8785), and the documents
/// are in the record, so that anybody can make the digests anew.
///
//===----------------------------------------------------------------------===//
#pragma once

#include "tuning/Benchmark.h"

namespace lathe {

/// The record of `result`: an object with `run`, `protocol`, `environment`, `workload` and `implementation`.
llvm::Expected<llvm::json::Value> toKernelIndex(const BenchResult& result, const BenchOptions& options);

/// A record of somebody's run, as far as it can be run again.
struct ImportedRun {
  std::string title;
  WorkItem item;
  BenchPass pass = BenchPass::Full;
  /// In milliseconds.
  double median = 0;
  /// Name of the GPU; empty where the record has none.
  std::string device;
};

/// Reads a record. The workload is that of its `workload` document where it has one, else it is read from its external
/// id, such as `.../batch4-hidden4096-seq1024-vocab128256-bf16/...`. The error says what is missing.
llvm::Expected<ImportedRun> parseKernelIndex(llvm::StringRef json);

} // namespace lathe
