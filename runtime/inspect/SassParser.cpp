//===- runtime/inspect/SassParser.cpp - Reading nvdisasm's text -------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Sass.h"

#include "llvm/ADT/StringMap.h"

#include <map>

using namespace lathe;

namespace {

/// The file name by which nvdisasm means the PTX inside the cubin.
constexpr llvm::StringLiteral kPtxFile = ".nv_debug_ptx_txt";

struct LineNote {
  llvm::StringRef file;
  int line = 0;
};

/// Reads `File "X", line 7 inlined at "Y", line 9`, of which the second place has a note of its own; none when it is
/// anything else.
std::optional<LineNote> parseNote(llvm::StringRef text) {
  LineNote note;
  if (!text.consume_front("File \"")) return std::nullopt;
  const size_t end = text.find("\", line ");
  if (end == llvm::StringRef::npos) return std::nullopt;
  note.file = text.take_front(end);
  text = text.drop_front(end + llvm::StringRef("\", line ").size());
  if (text.consumeInteger(10, note.line) || note.line < 0) return std::nullopt;
  return note;
}

/// The label in `` `(.L_x_1) ``; empty when there is none.
llvm::StringRef labelIn(llvm::StringRef text) {
  const size_t begin = text.find("`(");
  if (begin == llvm::StringRef::npos) return {};
  return text.drop_front(begin + 2).take_until([](char c) { return c == ')'; });
}

/// `@!P0 BRA .L_x_1` for ``@!P0 BRA `(.L_x_1)``.
std::string readable(llvm::StringRef text) {
  const llvm::StringRef label = labelIn(text);
  if (label.empty()) return text.str();
  const size_t begin = text.find("`(");
  const llvm::StringRef rest = text.drop_front(begin + 2 + label.size());
  return (text.take_front(begin) + label + (rest.starts_with(")") ? rest.drop_front(1) : rest)).str();
}

/// The opcode: the first word, or the second after a predicate.
llvm::StringRef opcodeIn(llvm::StringRef text) {
  if (text.starts_with("@")) text = text.split(' ').second.ltrim();
  return text.take_until([](char c) { return c == ' ' || c == ';'; });
}

class Parser {
public:
  std::vector<SassListing> parse(llvm::StringRef text) {
    while (!text.empty()) {
      const auto [line, rest] = text.split('\n');
      parseLine(line.trim());
      text = rest;
    }
    endFunction();
    return std::move(listings_);
  }

private:
  void parseLine(llvm::StringRef line) {
    if (line.consume_front("//##")) return addNote(line.trim());
    if (line.consume_front(".section\t") || line.consume_front(".section ")) return addSection(line.trim());
    if (line.consume_front("/*")) return addInstruction(line);
    if (line.ends_with(":") && !line.contains(' ')) addLabel(line.drop_back(1));
  }

  void addSection(llvm::StringRef text) {
    endFunction();
    if (!text.consume_front(".text.")) return;
    listings_.emplace_back();
    listings_.back().entry = text.take_until([](char c) { return c == ',' || c == '"'; }).str();
    inFunction_ = true;
  }

  /// A note begins a new stack unless it follows another note.
  void addNote(llvm::StringRef text) {
    if (!inFunction_) return;
    const std::optional<LineNote> note = parseNote(text);
    if (!note) return;
    if (note->file == kPtxFile) {
      ptxLine_ = note->line;
      return;
    }
    if (!pending_) stack_.clear();
    pending_ = true;
    stack_.push_back({note->file.str(), note->line});
  }

  void addLabel(llvm::StringRef name) {
    if (inFunction_) pendingLabels_.push_back(name);
  }

  /// `0070*/  @P0 BRA `(.L_x_1) ;`
  void addInstruction(llvm::StringRef text) {
    int64_t address = 0;
    if (!inFunction_ || text.consumeInteger(16, address) || address < 0 || !text.consume_front("*/")) return;
    const size_t end = text.find(';');
    if (end == llvm::StringRef::npos) return;
    const llvm::StringRef body = text.take_front(end).trim();
    if (body.empty()) return;
    for (const llvm::StringRef label : pendingLabels_) labels_[label] = address;
    pendingLabels_.clear();

    SassListing& listing = listings_.back();
    SassInstruction instruction;
    instruction.address = address;
    instruction.text = readable(body);
    instruction.opcode = opcodeIn(body).str();
    instruction.kind = classify(instruction.opcode);
    instruction.stack = stackIndex(listing);
    instruction.ptxLine = ptxLine_;
    if (const llvm::StringRef label = labelIn(body); !label.empty())
      branches_.push_back({listing.instructions.size(), label});
    listing.instructions.push_back(std::move(instruction));
  }

  /// The index of the current stack in `listing`, which keeps each once.
  int stackIndex(SassListing& listing) {
    if (pending_) {
      const auto [found, isNew] = stackIndices_.try_emplace(stack_, static_cast<int>(listing.stacks.size()));
      if (isNew) listing.stacks.push_back(stack_);
      current_ = found->second;
      pending_ = false;
    }
    return current_;
  }

  /// Labels may follow the branches to them; only now are all known.
  void endFunction() {
    if (inFunction_) {
      for (const auto& [index, label] : branches_)
        if (const auto found = labels_.find(label); found != labels_.end())
          listings_.back().instructions[index].target = found->second;
      if (listings_.back().instructions.empty()) listings_.pop_back();
    }
    branches_.clear();
    labels_.clear();
    pendingLabels_.clear();
    stackIndices_.clear();
    stack_.clear();
    pending_ = inFunction_ = false;
    current_ = -1;
    ptxLine_ = 0;
  }

  std::vector<SassListing> listings_;
  bool inFunction_ = false;
  std::vector<std::pair<size_t, llvm::StringRef>> branches_;
  llvm::StringMap<int64_t> labels_;
  std::vector<llvm::StringRef> pendingLabels_;
  /// The stack of the next instruction; `pending_` until an instruction took it.
  std::vector<SourcePlace> stack_;
  bool pending_ = false;
  std::map<std::vector<SourcePlace>, int> stackIndices_;
  int current_ = -1;
  int ptxLine_ = 0;
};

} // namespace

llvm::Expected<std::vector<SassListing>> lathe::parseSass(llvm::StringRef text) {
  std::vector<SassListing> listings = Parser().parse(text);
  if (!listings.empty()) return listings;
  return makeError(ErrorCode::Corrupt,
                   "the disassembly of {0} bytes has no instruction; it must be what `nvdisasm -c` prints for a cubin",
                   text.size());
}
