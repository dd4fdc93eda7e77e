//===- tuning/SvgPlot.cpp - Plots as pictures -------------------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "tuning/SvgPlot.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace lathe;

namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 72, kRight = 24, kTop = 44, kBottom = 56;
constexpr double kLegendRow = 18;
/// Told apart by the colour-blind too.
constexpr llvm::StringLiteral kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                            "#e69f00", "#56b4e9", "#666666"};

std::string escaped(llvm::StringRef text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else
      result += c;
  }
  return result;
}

/// A step of 1, 2 or 5 times a power of ten that divides [0, `most`] into about five.
double stepFor(double most) {
  const double raw = most / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

/// One axis: values from 0 to `most` on pixels from `from` to `to`.
struct Axis {
  double most, step, from, to;

  Axis(double largest, double from, double to) : from(from), to(to) {
    step = stepFor(largest > 0 ? largest : 1);
    most = step * std::ceil((largest > 0 ? largest : 1) / step);
  }
  double at(double value) const { return from + (to - from) * value / most; }
};

bool isFinite(const PlotPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && std::isfinite(point.low) && std::isfinite(point.high);
}

class Drawing {
public:
  explicit Drawing(const Plot& plot)
      : plot_(plot), x_(largest(&PlotPoint::x), kLeft, kWidth - kRight),
        y_(std::max(largest(&PlotPoint::y), largest(&PlotPoint::high)), kHeight - kBottom, kTop), os_(text_) {}

  std::string draw() {
    const double height = kHeight + kLegendRow * static_cast<double>(plot_.series.size());
    os_ << llvm::formatv("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
                         "font-family=\"sans-serif\" font-size=\"12\">\n"
                         "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
                         kWidth, height);
    label(kWidth / 2, 24, "middle", plot_.title, " font-size=\"15\"");
    drawAxes();
    for (size_t i = 0; i < plot_.series.size(); ++i) drawSeries(i);
    os_ << "</svg>\n";
    return text_;
  }

private:
  double largest(double PlotPoint::* member) const {
    double most = 0;
    for (const PlotSeries& series : plot_.series)
      for (const PlotPoint& point : series.points)
        if (isFinite(point)) most = std::max(most, point.*member);
    return most;
  }

  void label(double x, double y, const char* anchor, llvm::StringRef text, llvm::StringRef more = "") {
    os_ << llvm::formatv("<text x=\"{0:f1}\" y=\"{1:f1}\" text-anchor=\"{2}\" fill=\"#222222\"{3}>{4}</text>\n", x, y,
                         anchor, more, escaped(text));
  }
  void line(double x1, double y1, double x2, double y2, llvm::StringRef colour) {
    os_ << llvm::formatv("<line x1=\"{0:f1}\" y1=\"{1:f1}\" x2=\"{2:f1}\" y2=\"{3:f1}\" stroke=\"{4}\"/>\n", x1, y1, x2,
                         y2, colour);
  }
  static std::string numberOf(double value) { return llvm::formatv("{0}", llvm::format("%.6g", value)).str(); }

  void drawAxes() {
    for (int i = 0; i * y_.step <= y_.most * (1 + 1e-9); ++i) {
      const double y = y_.at(i * y_.step);
      line(kLeft, y, kWidth - kRight, y, i == 0 ? "#222222" : "#dddddd");
      label(kLeft - 8, y + 4, "end", numberOf(i * y_.step));
    }
    for (int i = 0; i * x_.step <= x_.most * (1 + 1e-9); ++i) {
      const double x = x_.at(i * x_.step);
      line(x, kHeight - kBottom, x, kHeight - kBottom + 5, "#222222");
      label(x, kHeight - kBottom + 20, "middle", numberOf(i * x_.step));
    }
    line(kLeft, kTop, kLeft, kHeight - kBottom, "#222222");
    label((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", plot_.xLabel);
    const std::string turned = llvm::formatv(" transform=\"rotate(-90 18 {0:f1})\"", (kTop + kHeight - kBottom) / 2);
    label(18, (kTop + kHeight - kBottom) / 2, "middle", plot_.yLabel, turned);
  }

  void drawSeries(size_t index) {
    const PlotSeries& series = plot_.series[index];
    const llvm::StringRef colour = kColours[index % std::size(kColours)];
    if (series.line) {
      os_ << "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" << colour << "\" points=\"";
      for (const PlotPoint& point : series.points)
        if (isFinite(point)) os_ << llvm::formatv("{0:f1},{1:f1} ", x_.at(point.x), y_.at(point.y));
      os_ << "\"/>\n";
    }
    for (const PlotPoint& point : series.points) {
      if (!isFinite(point)) continue;
      if (point.high > point.low) line(x_.at(point.x), y_.at(point.low), x_.at(point.x), y_.at(point.high), colour);
      os_ << llvm::formatv("<circle cx=\"{0:f1}\" cy=\"{1:f1}\" r=\"3\" fill=\"{2}\"/>\n", x_.at(point.x),
                           y_.at(point.y), colour);
    }
    const double y = kHeight + kLegendRow * static_cast<double>(index);
    line(kLeft, y, kLeft + 20, y, colour);
    label(kLeft + 28, y + 4, "start", series.name);
  }

  const Plot& plot_;
  const Axis x_, y_;
  std::string text_;
  llvm::raw_string_ostream os_;
};

} // namespace

std::string lathe::toSvg(const Plot& plot) {
  return Drawing(plot).draw();
}
