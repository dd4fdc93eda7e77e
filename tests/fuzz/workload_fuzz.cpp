// A workload either fails to parse with an error, or prints canonically as one that parses to the same.
#include "generator/Workload.h"

#include <cstdlib>

using namespace lathe;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  llvm::Expected<Workload> workload = parseWorkload(llvm::StringRef(reinterpret_cast<const char*>(data), size));
  if (!workload) {
    if (llvm::toString(workload.takeError()).empty()) std::abort();
    return 0;
  }
  const std::string text = canonicalJson(*workload);
  llvm::Expected<Workload> again = parseWorkload(text);
  if (!again || !(*again == *workload) || canonicalJson(*again) != text) std::abort();
  return 0;
}
