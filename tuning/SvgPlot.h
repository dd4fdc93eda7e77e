//===- tuning/SvgPlot.h - Plots as pictures ----------------------*- C++ -*-===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#pragma once

#include <string>
#include <vector>

namespace lathe {

/// A point, and how far its value reaches down and up.
struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;
  double high = 0;
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
  /// Joins the points in the order of `points`.
  bool line = true;
};

/// A plot with two axes that begin at 0.
struct Plot {
  std::string title;
  std::string xLabel;
  std::string yLabel;
  std::vector<PlotSeries> series;
};

/// `plot` as an SVG document that needs nothing else to be shown. Points that are not finite are left out.
std::string toSvg(const Plot& plot);

} // namespace lathe
