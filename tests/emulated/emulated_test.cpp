// The kernels of the simt and mma_sync families compute right results: their sources run on the CPU, thread by thread,
// under the whole runtime. One of kDefaultStride validated plans is run; LATHE_EMULATE_STRIDE=1 runs them all.
#include "tests/emulated/HostKernel.h"
#include "tests/support/ResultChecks.h"
#include "tests/support/RuntimeSamples.h"
#include "tests/support/ValidationCases.h"

#include "runtime/api/DeviceRun.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/ThreadPool.h"

#include <cstdlib>

using namespace lathe;
using namespace lathe::test;
using Catch::Matchers::Contains;

namespace {

constexpr size_t kDefaultStride = 7;

size_t stride() {
  const char* text = std::getenv("LATHE_EMULATE_STRIDE");
  return text ? std::max<size_t>(1, std::strtoul(text, nullptr, 10)) : kDefaultStride;
}

const Target& target() {
  static const Target value = require(parseTarget("sm_80"));
  return value;
}

/// A GPU whose kernels, those of one plan, run on the CPU.
class EmulatedGpu {
public:
  explicit EmulatedGpu(const ValidationCase& value) {
    const std::vector<Specialization> specializations = specializationsOf(value, target());
    std::vector<llvm::Expected<HostKernel>> kernels;
    for (size_t i = 0; i < specializations.size(); ++i)
      kernels.push_back(makeError(ErrorCode::Internal, "not compiled"));
    llvm::DefaultThreadPool pool(llvm::hardware_concurrency());
    for (size_t i = 0; i < specializations.size(); ++i) {
      llvm::consumeError(kernels[i].takeError());
      pool.async([&, i] { kernels[i] = HostKernel::compile(specializations[i], folder_.path()); });
    }
    pool.wait();
    for (size_t i = 0; i < specializations.size(); ++i)
      kernels_.try_emplace(specializations[i].entry, require(std::move(kernels[i])));

    driver_.setTarget(target());
    driver_.onLaunch([this](const FakeLaunch& launch) {
      try {
        kernels_.at(launch.kernel)
            .launch(launch.parameters[0].data(), {launch.grid[0], launch.grid[1], launch.grid[2]}, ++seed_);
      } catch (const std::exception& exception) {
        failure_ = launch.kernel + ": " + exception.what();
      }
    });
    runtime_ = makeRuntime(driver_);
  }

  LossResult run(const Case& value, const DeviceRunOptions& options) {
    LossResult result = require(runOnDevice(*runtime_, value, options));
    INFO(failure_);
    REQUIRE(failure_.empty());
    return result;
  }

private:
  ScratchFolder folder_;
  llvm::StringMap<HostKernel> kernels_;
  FakeDriver driver_;
  std::unique_ptr<Runtime::Implementation> runtime_;
  unsigned seed_ = 0;
  std::string failure_;
};

/// The plans that can be emulated: small, of the simt or mma_sync family.
std::vector<ValidationCase> emulatedCases() {
  std::vector<ValidationCase> cases = validationCases(target());
  llvm::erase_if(cases, [](const ValidationCase& value) {
    return value.large || value.request.configs->logits.family == Family::Wgmma;
  });
  return cases;
}

} // namespace

TEST_CASE("Asm statements become calls", "[emulated]") {
  CHECK(require(
            callInstructions("  asm volatile(\"bar.sync %0, %1;\" ::\"r\"(barrier), \"n\"(kCount) : \"memory\");\n")) ==
        "  ::emulator::ptx_bar_sync(barrier, kCount);\n");
  CHECK(require(callInstructions("asm(\"cvt.f32.f16 %0, \"\n \"%1;\" : \"=f\"(out[f(1)]) : \"h\"(value.bits));")) ==
        "::emulator::ptx_cvt_f32_f16(out[f(1)], value.bits);");
  CHECK(require(callInstructions("asm volatile(\"cp.async.commit_group;\" ::: \"memory\");")) ==
        "::emulator::ptx_cp_async_commit_group();");
  CHECK(require(callInstructions("plasma(1); // asm")) == "plasma(1); // asm");
  CHECK_THAT(requireError(callInstructions("asm(\"nop;\"")).message, Contains("not understood"));
}

TEST_CASE("Emulated plans agree with float64", "[emulated]") {
  const std::vector<ValidationCase> cases = emulatedCases();
  REQUIRE(cases.size() > 20);
  for (size_t i = 0; i < cases.size(); i += stride()) {
    const ValidationCase& each = cases[i];
    EmulatedGpu gpu(each);
    const Case value =
        makeRandomCase(each.workload, each.shape, each.scalars, 100 + i, each.logitStd, each.maskedFraction);
    const LossResult want = referenceOf(value, 2.5);
    for (const bool twoCalls : {false, true}) {
      INFO(each.name << (twoCalls ? ", loss and gradients apart" : ""));
      DeviceRunOptions options{.request = each.request, .twoCalls = twoCalls, .upstreamScale = 2.5f};
      checkClose(gpu.run(value, options), want, each.workload);
    }
  }
}
