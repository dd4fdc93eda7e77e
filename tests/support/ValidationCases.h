// The plans whose kernels must have passed on hardware: the GPU suite runs them, and a test without a GPU compares the
// digests of their sources with tests/gpu/validated.json.
#pragma once

#include "generator/CostModel.h"

#include <string>
#include <vector>

namespace lathe {

struct ValidationCase {
  std::string name;
  Workload workload;
  Shape shape;
  Scalars scalars;
  PlanRequest request;
  double maskedFraction = 0.4;
  double logitStd = 2.0;
  /// Real model sizes, whose reference takes seconds.
  bool large = false;
};

/// The configs of `family` alone for `workload`, the `index`-th of each product's space (wrapping); none when the
/// family cannot run it.
std::optional<GemmConfigs> configsOf(Family family, const Workload& workload, const Target& target, size_t index);

/// Every family, dtype, feature and strategy on small shapes, and the untuned plans of well-known models.
std::vector<ValidationCase> validationCases(const Target& target);

/// The kernels of `value`'s plan.
std::vector<Specialization> specializationsOf(const ValidationCase& value, const Target& target);

} // namespace lathe
