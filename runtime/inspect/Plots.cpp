//===- runtime/inspect/Plots.cpp - Plots of an inspection as SVG ------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Plots.h"

#include "runtime/inspect/Html.h"
#include "runtime/inspect/Quantities.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace lathe;

namespace {

/// Where the axes of a plot lie in its picture, and what their ends stand for.
struct Frame {
  double left = 70, top = 15, right = 780, bottom = 330;
  double minX, maxX, minY, maxY;
  bool logX = false, logY = false;

  double x(double value) const { return left + (right - left) * share(value, minX, maxX, logX); }
  double y(double value) const { return bottom - (bottom - top) * share(value, minY, maxY, logY); }

private:
  static double share(double value, double least, double most, bool logarithmic) {
    const double part =
        logarithmic ? std::log(value / least) / std::log(most / least) : (value - least) / (most - least);
    return std::clamp(part, 0.0, 1.0);
  }
};

std::string number(double value) {
  return llvm::formatv("{0:f1}", value).str();
}

/// A picture in the making.
class Svg {
public:
  explicit Svg(llvm::StringRef label) {
    text_ = "<svg viewBox=\"0 0 820 380\" width=\"820\" height=\"380\" role=\"img\" aria-label=\"" + escapeHtml(label) +
            "\">\n";
  }

  void line(llvm::StringRef style, double x1, double y1, double x2, double y2) {
    text_ += "<line class=\"" + style.str() + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" +
             number(x2) + "\" y2=\"" + number(y2) + "\"/>\n";
  }
  void label(llvm::StringRef style, double x, double y, llvm::StringRef anchor, llvm::StringRef text) {
    text_ += "<text class=\"" + style.str() + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" +
             anchor.str() + "\">" + escapeHtml(text) + "</text>\n";
  }
  /// A dot with a tool tip.
  void dot(llvm::StringRef style, double x, double y, double radius, llvm::StringRef tip) {
    text_ += "<circle class=\"" + style.str() + "\" cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" +
             number(radius) + "\"><title>" + escapeHtml(tip) + "</title></circle>\n";
  }
  std::string finish() { return std::move(text_) + "</svg>\n"; }

private:
  std::string text_;
};

std::string flopRateText(double flops) {
  return flops >= 1e12 ? llvm::formatv("{0:f0} TFLOP/s", flops / 1e12).str()
                       : llvm::formatv("{0:f0} GFLOP/s", flops / 1e9).str();
}

void drawGrid(Svg& svg, const Frame& frame) {
  for (double intensity = 1; intensity <= frame.maxX; intensity *= 10) {
    svg.line("grid", frame.x(intensity), frame.top, frame.x(intensity), frame.bottom);
    svg.label("faint", frame.x(intensity), frame.bottom + 16, "middle", llvm::formatv("{0:f0}", intensity).str());
  }
  for (double rate = 1e12; rate <= frame.maxY; rate *= 10) {
    svg.line("grid", frame.left, frame.y(rate), frame.right, frame.y(rate));
    svg.label("faint", frame.left - 6, frame.y(rate) + 4, "end", llvm::formatv("{0:f0}", rate / 1e12).str());
  }
  svg.label("faint", frame.right, frame.bottom + 34, "end", "FLOP for each byte");
  svg.label("faint", frame.left, frame.top - 3, "start", "TFLOP/s");
}

/// The roof that `bytes` a second make, up to the flat one of `flops`. Its name stands above it, to the left, or below
/// it.
void drawSlope(Svg& svg, const Frame& frame, llvm::StringRef style, double bytes, double flops, llvm::StringRef name,
               bool nameAbove) {
  const double begin = std::max(frame.minX, frame.minY / bytes);
  const double ridge = flops / bytes;
  svg.line(style, frame.x(begin), frame.y(begin * bytes), frame.x(ridge), frame.y(flops));
  const double at = nameAbove ? ridge / 8 : begin * 1.5;
  svg.label("faint", frame.x(at) + (nameAbove ? -8 : 8), frame.y(at * bytes) + (nameAbove ? -4 : 14),
            nameAbove ? "end" : "start", llvm::formatv("{0} {1:f1} TB/s", name, bytes / 1e12).str());
}

/// A flat roof from `ridge` on; its name stands at that end.
void drawRoof(Svg& svg, const Frame& frame, double flops, double ridge, llvm::StringRef name) {
  svg.line("roof", frame.x(ridge), frame.y(flops), frame.right, frame.y(flops));
  svg.label("faint", frame.x(ridge) + 44, frame.y(flops) - 6, "start", (name + " " + flopRateText(flops)).str());
}

/// One product in the roofline plot.
struct RooflinePoint {
  std::string label;
  double intensity = 0;
  double rate = 0;
  bool measured = false;
  bool ofL2 = false;
};

std::vector<RooflinePoint> pointsOf(const PlanInspection& plan) {
  std::vector<RooflinePoint> points;
  for (const StepInspection& step : plan.steps) {
    if (step.flops <= 0 || step.bytes <= 0) continue;
    if (llvm::any_of(points, [&](const RooflinePoint& point) { return point.label == step.step; })) continue;
    const double milliseconds =
        step.measuredMilliseconds.value_or(step.predictedMilliseconds.value_or(step.floorMilliseconds));
    if (milliseconds <= 0) continue;
    const double rate = step.flops / (milliseconds * 1e-3);
    const bool measured = step.measuredMilliseconds.has_value();
    points.push_back({step.step, step.flops / step.bytes, rate, measured, false});
    for (const FloorTime& floor : step.floors)
      if (floor.bound == Bound::L2)
        points.push_back({step.step + " (L2)", step.flops / floor.amount, rate, measured, true});
  }
  llvm::sort(points, [](const RooflinePoint& a, const RooflinePoint& b) {
    return std::tie(a.ofL2, a.label) < std::tie(b.ofL2, b.label);
  });
  return points;
}

/// Labels stand in a column of their own below the roofs, each with a line to its dot: products tend to lie close
/// together.
void drawPoints(Svg& svg, const Frame& frame, const std::vector<RooflinePoint>& points, double top) {
  double height = top;
  for (const RooflinePoint& point : points) {
    const double x = frame.x(point.intensity), y = frame.y(point.rate);
    const std::string tip =
        llvm::formatv("{0}: {1}, {2:f0} FLOP for each byte{3}", point.label, flopRateText(point.rate), point.intensity,
                      point.measured ? ", measured" : ", predicted")
            .str();
    const bool toTheLeft = x > (frame.left + frame.right) * 0.6;
    svg.line("leader", x, y, x + (toTheLeft ? -12 : 12), height - 4);
    svg.label("", x + (toTheLeft ? -15 : 15), height, toTheLeft ? "end" : "start",
              point.label + ", " + flopRateText(point.rate));
    svg.dot(point.ofL2 ? "floor" : point.measured ? "point measured" : "point", x, y, 5, tip);
    height += 18;
  }
}

/// Points drawn at most: a page stays light.
constexpr size_t kMostPoints = 600;

} // namespace

std::string lathe::rooflinePlot(const PlanInspection& plan) {
  const std::vector<RooflinePoint> points = pointsOf(plan);
  if (points.empty() || plan.rates.memoryBytes <= 0) return "";
  Frame frame;
  frame.minX = 0.3;
  frame.maxX = 1e4;
  frame.minY = 0.3e12;
  frame.maxY = plan.rates.tensorFlops * 1.8;
  frame.logX = frame.logY = true;
  Svg svg("Roofline: FLOPs a second over FLOPs for each byte");
  drawGrid(svg, frame);
  drawSlope(svg, frame, "roof", plan.rates.memoryBytes, plan.rates.tensorFlops, "memory", false);
  drawSlope(svg, frame, "roof second", plan.rates.l2Bytes, plan.rates.tensorFlops, "L2", true);
  drawRoof(svg, frame, plan.rates.tensorFlops, plan.rates.tensorFlops / plan.rates.l2Bytes, "tensor cores, 16 bits");
  drawRoof(svg, frame, plan.rates.fmaFlops, plan.rates.fmaFlops / plan.rates.memoryBytes, "FMA units");
  drawPoints(svg, frame, points, frame.y(plan.rates.fmaFlops) + 26);
  return svg.finish();
}

std::string lathe::landscapePlot(const Landscape& landscape) {
  if (landscape.points.empty()) return "";
  const size_t count = std::min(landscape.points.size(), kMostPoints);
  const llvm::ArrayRef<LandscapePoint> points = llvm::ArrayRef(landscape.points).take_front(count);
  const double least = points.front().predictedMilliseconds;
  Frame frame;
  frame.minX = 0;
  frame.maxX = double(count);
  frame.minY = 0;
  // What is three times slower than the best lies at the rim.
  frame.maxY = std::min(points.back().predictedMilliseconds, 3 * least) * 1.05;
  Svg svg("Times of the configs of " + landscape.step);
  for (int part = 0; part <= 4; ++part) {
    const double time = frame.maxY * part / 4;
    svg.line("grid", frame.left, frame.y(time), frame.right, frame.y(time));
    svg.label("faint", frame.left - 6, frame.y(time) + 4, "end", timeText(time));
  }
  svg.label("faint", frame.right, frame.bottom + 20, "end",
            llvm::formatv("{0} of {1} configs, fastest first", count, landscape.points.size()).str());
  for (size_t i = 0; i < count; ++i) {
    const LandscapePoint& point = points[i];
    const double x = frame.x(double(i) + 0.5);
    const std::string tip = point.config + ": predicted " + timeText(point.predictedMilliseconds);
    svg.dot("candidate", x, frame.y(point.predictedMilliseconds), 2, tip);
    if (point.measuredMilliseconds)
      svg.dot("point measured", x, frame.y(*point.measuredMilliseconds), 3.5,
              point.config + ": measured " + timeText(*point.measuredMilliseconds));
    if (!point.chosen) continue;
    svg.dot("floor", x, frame.y(point.predictedMilliseconds), 7, tip);
    svg.label("", x + 12, frame.y(point.predictedMilliseconds) + 22, "start", "chosen: " + point.config);
  }
  return svg.finish();
}
