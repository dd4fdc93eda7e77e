// Every kernel of the validation cases has passed on hardware as it is generated today, or is listed as pending with a
// reason. tests/gpu/run writes tests/gpu/validated.json.
#include "tests/support/ValidationCases.h"

#include "tests/support/Failures.h"

#include "llvm/Support/MemoryBuffer.h"

#include <catch2/catch.hpp>

#include <map>
#include <set>

using namespace lathe;
using lathe::test::require;

TEST_CASE("Every generated kernel was validated on hardware or is pending with a reason") {
  auto file = llvm::MemoryBuffer::getFile(LATHE_VALIDATED_JSON);
  REQUIRE(file);
  const llvm::json::Value document = require(llvm::json::parse((*file)->getBuffer()));
  const llvm::json::Object* root = document.getAsObject();
  REQUIRE(root);
  std::set<std::string> passed;
  for (const llvm::json::Value& device : *root->getArray("devices"))
    for (const llvm::json::Value& kernel : *device.getAsObject()->getArray("kernels"))
      passed.insert(kernel.getAsObject()->getString("source_digest")->str());
  std::set<std::string> pending;
  for (const llvm::json::Value& entry : *root->getArray("pending")) {
    const llvm::json::Object* kernel = entry.getAsObject();
    REQUIRE_FALSE(kernel->getString("reason").value_or("").empty());
    pending.insert(kernel->getString("source_digest")->str());
  }

  std::map<std::string, std::string> missing;
  size_t count = 0;
  const Target target = require(parseTarget("sm_90a"));
  for (const ValidationCase& value : validationCases(target))
    for (const Specialization& specialization : specializationsOf(value, target)) {
      ++count;
      const std::string digest = specialization.sourceDigest.text();
      if (!passed.count(digest) && !pending.count(digest))
        missing[digest] = value.name + ": " + toString(specialization.kind).str();
    }
  CHECK(count > 400);
  for (const auto& [digest, what] : missing) FAIL_CHECK(what << " " << digest << " is neither validated nor pending");
}
