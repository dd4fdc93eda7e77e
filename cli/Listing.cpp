//===- cli/Listing.cpp - Sources and machine code on a terminal -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "cli/Listing.h"

#include "generator/Error.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Unicode.h"

#include <map>
#include <optional>
#include <set>

using namespace lathe;
using namespace lathe::cli;

namespace {

constexpr int kNarrow = 100;
/// Columns of two listings where neither the terminal nor the user says how many there are.
constexpr int kUsualColumns = 160;

int widthOf(llvm::StringRef text) {
  const int width = llvm::sys::unicode::columnWidthUTF8(text);
  return width < 0 ? static_cast<int>(text.size()) : width;
}

/// As much of `text` as fits into `columns`.
llvm::StringRef cut(llvm::StringRef text, int columns) {
  if (columns <= 0 || widthOf(text) <= columns) return text;
  size_t bytes = 0;
  for (size_t next = 1; next <= text.size(); ++next) {
    // A continuation byte belongs to the character before it.
    if (next < text.size() && (static_cast<uint8_t>(text[next]) & 0xc0) == 0x80) continue;
    if (widthOf(text.take_front(next)) > columns) break;
    bytes = next;
  }
  return text.take_front(bytes);
}

std::string withoutTabs(llvm::StringRef text) {
  std::string result;
  for (const char c : text) result += c == '\t' ? std::string("  ") : std::string(1, c);
  return result;
}

void writeLine(llvm::raw_ostream& out, llvm::StringRef text, Tone tone, const ListingStyle& style) {
  write(out, cut(text, style.columns).rtrim(), tone, style.colour);
  out << '\n';
}

/// The lines of the sources, to be found by name and number.
class SourceLines {
public:
  explicit SourceLines(const std::vector<SourceFile>& files) {
    for (const SourceFile& file : files) llvm::StringRef(file.text).split(lines_[file.name], '\n');
  }

  /// Empty where there is no such line.
  llvm::StringRef at(const SourcePlace& place) const {
    const auto found = lines_.find(place.file);
    if (found == lines_.end() || place.line < 1 || static_cast<size_t>(place.line) > found->second.size()) return {};
    return found->second[place.line - 1].trim();
  }

private:
  llvm::StringMap<llvm::SmallVector<llvm::StringRef>> lines_;
};

std::string placeText(const SourcePlace& place) {
  return place.file + ":" + std::to_string(place.line);
}

Tone toneOf(const SassInstruction& instruction) {
  switch (instruction.kind) {
  case InstructionClass::Tensor:
    return Tone::Strong;
  case InstructionClass::Local:
    return Tone::Bad;
  case InstructionClass::Tma:
  case InstructionClass::Global:
    return Tone::Good;
  default:
    return Tone::Plain;
  }
}

/// `/*0a60*/ | HGMMA...`: a bar in the hot loop, an arrow where a branch leads.
class InstructionText {
public:
  explicit InstructionText(const KernelInspection& kernel) : kernel_(kernel) {
    for (const SassInstruction& instruction : kernel.sass->instructions)
      if (instruction.target) targets_.insert(*instruction.target);
  }

  std::string of(size_t index) const {
    const SassInstruction& instruction = kernel_.sass->instructions[index];
    return llvm::formatv("{0:x-4} {1}{2} {3}", instruction.address, isHot(index) ? '|' : ' ',
                         targets_.contains(instruction.address) ? '>' : ' ', withTarget(instruction))
        .str();
  }

private:
  bool isHot(size_t index) const { return kernel_.hotLoop && kernel_.loops[*kernel_.hotLoop].contains(index); }
  static std::string withTarget(const SassInstruction& instruction) {
    if (!instruction.target) return instruction.text;
    return llvm::formatv("{0} -> {1:x-4}", instruction.text, *instruction.target).str();
  }

  const KernelInspection& kernel_;
  std::set<int64_t> targets_;
};

/// The innermost line of `stack`; none for -1.
const SourcePlace* placeOf(const SassListing& sass, int stack) {
  return stack < 0 || sass.stacks[stack].empty() ? nullptr : &sass.stacks[stack].front();
}

/// The template's line of each line of PTX, by way of the machine code that was made of both.
std::map<int, SourcePlace> placesOfPtx(const KernelInspection& kernel) {
  std::map<int, SourcePlace> places;
  if (!kernel.sass) return places;
  for (const SassInstruction& instruction : kernel.sass->instructions)
    if (const SourcePlace* place = placeOf(*kernel.sass, instruction.stack); place && instruction.ptxLine > 0)
      places.try_emplace(instruction.ptxLine, *place);
  return places;
}

/// `text` cut or filled up to `columns`.
std::string fitted(llvm::StringRef text, int columns) {
  const llvm::StringRef part = cut(text, columns);
  return part.str() + std::string(std::max(columns - widthOf(part), 0), ' ');
}

} // namespace

void lathe::cli::printNumbered(llvm::raw_ostream& out, llvm::StringRef text, const ListingStyle& style) {
  int number = 0;
  for (const llvm::StringRef line : llvm::split(text.rtrim('\n'), '\n'))
    writeLine(out, llvm::formatv("{0,5}  {1}", ++number, withoutTabs(line)).str(), Tone::Plain, style);
}

void lathe::cli::printPtx(llvm::raw_ostream& out, const KernelInspection& kernel, const ListingStyle& style) {
  const std::map<int, SourcePlace> places = placesOfPtx(kernel);
  const SourceLines lines(kernel.sources);
  SourcePlace last;
  int number = 0;
  for (const llvm::StringRef line : llvm::split(llvm::StringRef(kernel.ptx).rtrim('\n'), '\n')) {
    if (const auto place = places.find(++number); place != places.end() && place->second != last) {
      last = place->second;
      writeLine(out, llvm::formatv("       // {0}  {1}", placeText(last), lines.at(last)).str(), Tone::Faint, style);
    }
    writeLine(out, llvm::formatv("{0,5}  {1}", number, withoutTabs(line)).str(), Tone::Plain, style);
  }
}

void lathe::cli::printSass(llvm::raw_ostream& out, const KernelInspection& kernel, const ListingStyle& style) {
  const SassListing& sass = *kernel.sass;
  const SourceLines lines(kernel.sources);
  const InstructionText text(kernel);
  int stack = -1;
  for (size_t i = 0; i < sass.instructions.size(); ++i) {
    const SassInstruction& instruction = sass.instructions[i];
    if (instruction.stack != stack) {
      stack = instruction.stack;
      if (const SourcePlace* place = placeOf(sass, stack))
        writeLine(out, llvm::formatv("         // {0}  {1}", placeText(*place), lines.at(*place)).str(), Tone::Faint,
                  style);
    }
    writeLine(out, text.of(i), toneOf(instruction), style);
  }
}

void lathe::cli::printSideBySide(llvm::raw_ostream& out, const KernelInspection& kernel, const ListingStyle& style) {
  const int columns = style.columns > 0 ? style.columns : kUsualColumns;
  if (columns < kNarrow) return printSass(out, kernel, style);
  const SassListing& sass = *kernel.sass;
  const SourceLines lines(kernel.sources);
  const InstructionText text(kernel);
  const int left = columns / 2 - 1;
  int stack = -1;
  for (size_t i = 0; i < sass.instructions.size(); ++i) {
    const SassInstruction& instruction = sass.instructions[i];
    std::string source;
    if (const SourcePlace* place = placeOf(sass, instruction.stack); place && instruction.stack != stack)
      source = llvm::formatv("{0,-28} {1}", placeText(*place), withoutTabs(lines.at(*place))).str();
    stack = instruction.stack;
    write(out, fitted(source, left), Tone::Faint, style.colour);
    out << "  ";
    writeLine(out, text.of(i), toneOf(instruction), {style.colour, columns - left - 2});
  }
}
