//===- runtime/inspect/Loops.cpp - Loops of the machine code ----------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/inspect/Sass.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <map>
#include <set>

using namespace lathe;

namespace {

/// Functions with more blocks than this are not looked at: nothing that Lathe generates comes near.
constexpr size_t kMostBlocks = 100'000;

/// Instructions that run one after the other.
struct BasicBlock {
  size_t begin = 0;
  size_t end = 0;
  llvm::SmallVector<int, 2> successors;
  llvm::SmallVector<int, 2> predecessors;
};

bool isBranch(const SassInstruction& instruction) {
  const llvm::StringRef opcode = instruction.opcode;
  return opcode == "BRA" || opcode.starts_with("BRA.") || opcode == "JMP" || opcode.starts_with("JMP.");
}

/// Whether the code ends here or goes on elsewhere, in any case.
bool isFinal(const SassInstruction& instruction) {
  const llvm::StringRef text = instruction.text;
  if (text.starts_with("@")) return false;
  // `BRA.U UP0, .L_x_3` is conditional too.
  if (isBranch(instruction)) return !text.contains(',');
  const llvm::StringRef base = llvm::StringRef(instruction.opcode).split('.').first;
  return base == "EXIT" || base == "RET" || base == "BRX" || base == "JMX" || base == "KILL";
}

/// The index of the instruction at `address`; none where it lies between instructions.
std::optional<size_t> indexAt(llvm::ArrayRef<SassInstruction> instructions, int64_t address) {
  const auto found =
      llvm::lower_bound(instructions, address, [](const SassInstruction& a, int64_t b) { return a.address < b; });
  if (found == instructions.end() || found->address != address) return std::nullopt;
  return found - instructions.begin();
}

/// The blocks of a function and how control passes between them.
class FlowGraph {
public:
  explicit FlowGraph(llvm::ArrayRef<SassInstruction> instructions) : instructions_(instructions) {
    findBlocks();
    if (blocks_.size() > kMostBlocks) blocks_.clear();
    connect();
    order();
    findDominators();
  }

  const std::vector<BasicBlock>& blocks() const { return blocks_; }

  /// Whether every way to `block` leads through `dominator`. Both can be reached.
  bool dominates(int dominator, int block) const {
    while (rank_[block] > rank_[dominator]) block = dominators_[block];
    return block == dominator;
  }
  bool isReached(int block) const { return rank_[block] >= 0; }

private:
  void findBlocks() {
    std::set<size_t> leaders;
    for (size_t i = 0; i < instructions_.size(); ++i) {
      const SassInstruction& instruction = instructions_[i];
      if (i == 0 || isBranch(instructions_[i - 1]) || isFinal(instructions_[i - 1])) leaders.insert(i);
      if (isBranch(instruction) && instruction.target)
        if (const std::optional<size_t> target = indexAt(instructions_, *instruction.target)) leaders.insert(*target);
    }
    for (const size_t leader : leaders) {
      if (!blocks_.empty()) blocks_.back().end = leader;
      blocks_.push_back({leader, instructions_.size(), {}, {}});
    }
  }

  int blockAt(size_t instruction) const {
    const auto after = llvm::upper_bound(blocks_, instruction,
                                         [](size_t index, const BasicBlock& block) { return index < block.begin; });
    return static_cast<int>(after - blocks_.begin()) - 1;
  }

  void connect() {
    const auto link = [&](int from, int to) {
      blocks_[from].successors.push_back(to);
      blocks_[to].predecessors.push_back(from);
    };
    for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
      const SassInstruction& last = instructions_[blocks_[block].end - 1];
      if (!isFinal(last) && block + 1 < static_cast<int>(blocks_.size())) link(block, block + 1);
      if (!isBranch(last) || !last.target) continue;
      if (const std::optional<size_t> target = indexAt(instructions_, *last.target)) link(block, blockAt(*target));
    }
  }

  /// Ranks blocks so that each, loops aside, comes after those before it: depth-first, in reverse of leaving.
  void order() {
    rank_.assign(blocks_.size(), -1);
    if (blocks_.empty()) return;
    llvm::BitVector seen(blocks_.size());
    std::vector<std::pair<int, size_t>> path = {{0, 0}};
    seen.set(0);
    while (!path.empty()) {
      auto& [block, next] = path.back();
      if (next < blocks_[block].successors.size()) {
        const int successor = blocks_[block].successors[next++];
        if (!seen.test(successor)) path.push_back({successor, 0});
        seen.set(successor);
        continue;
      }
      order_.push_back(block);
      path.pop_back();
    }
    std::reverse(order_.begin(), order_.end());
    for (size_t i = 0; i < order_.size(); ++i) rank_[order_[i]] = static_cast<int>(i);
  }

  /// Cooper, Harvey and Kennedy's iteration.
  void findDominators() {
    dominators_.assign(blocks_.size(), -1);
    if (order_.empty()) return;
    dominators_[0] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (const int block : llvm::drop_begin(order_)) {
        int common = -1;
        for (const int before : blocks_[block].predecessors)
          if (isReached(before) && dominators_[before] >= 0) common = common < 0 ? before : meet(common, before);
        changed |= dominators_[block] != common;
        dominators_[block] = common;
      }
    }
  }

  int meet(int a, int b) const {
    while (a != b) {
      while (rank_[a] > rank_[b]) a = dominators_[a];
      while (rank_[b] > rank_[a]) b = dominators_[b];
    }
    return a;
  }

  llvm::ArrayRef<SassInstruction> instructions_;
  std::vector<BasicBlock> blocks_;
  std::vector<int> order_;
  std::vector<int> rank_;
  std::vector<int> dominators_;
};

/// The blocks from which `latch` is reached without passing `header`, and `header`.
void addBody(const FlowGraph& graph, int header, int latch, std::set<int>& body) {
  body.insert(header);
  std::vector<int> work = {latch};
  while (!work.empty()) {
    const int block = work.back();
    work.pop_back();
    if (!graph.isReached(block) || !body.insert(block).second) continue;
    llvm::append_range(work, graph.blocks()[block].predecessors);
  }
}

SassLoop loopOf(const FlowGraph& graph, llvm::ArrayRef<SassInstruction> instructions, const std::set<int>& body) {
  SassLoop loop;
  for (const int index : body) {
    const BasicBlock& block = graph.blocks()[index];
    if (!loop.ranges.empty() && loop.ranges.back().end == block.begin)
      loop.ranges.back().end = block.end;
    else
      loop.ranges.push_back({block.begin, block.end});
    for (const SassInstruction& instruction : instructions.slice(block.begin, block.end - block.begin)) {
      ++loop.mix[instruction.kind];
      loop.flops += flopsOf(instruction);
      loop.sharedBytes += sharedBytesOf(instruction);
    }
  }
  return loop;
}

int64_t accesses(const SassLoop& loop) {
  return loop.mix[InstructionClass::Global] + loop.mix[InstructionClass::Shared] + loop.mix[InstructionClass::Tma];
}

bool liesIn(const SassLoop& inner, const SassLoop& outer) {
  return inner.instructions() < outer.instructions() && outer.contains(inner.ranges.front().begin);
}

} // namespace

std::vector<SassLoop> lathe::findLoops(const SassListing& listing) {
  const FlowGraph graph(listing.instructions);
  // Several branches back to one block are one loop.
  std::map<int, std::set<int>> bodies;
  for (int block = 0; block < static_cast<int>(graph.blocks().size()); ++block)
    for (const int header : graph.blocks()[block].successors)
      if (graph.isReached(block) && graph.dominates(header, block)) addBody(graph, header, block, bodies[header]);

  std::vector<SassLoop> loops;
  for (const auto& [header, body] : bodies) {
    SassLoop loop = loopOf(graph, listing.instructions, body);
    // The trap behind the code is a branch to itself.
    if (loop.instructions() > 1) loops.push_back(std::move(loop));
  }
  for (SassLoop& loop : loops)
    loop.depth = static_cast<int>(llvm::count_if(loops, [&](const SassLoop& other) { return liesIn(loop, other); }));
  return loops;
}

std::optional<size_t> lathe::findHotLoop(llvm::ArrayRef<SassLoop> loops) {
  const auto isInnermost = [&](const SassLoop& loop) {
    return llvm::none_of(loops, [&](const SassLoop& other) {
      return liesIn(other, loop) && (other.flops > 0 || (loop.flops == 0 && accesses(other) > 0));
    });
  };
  std::optional<size_t> best;
  const auto rank = [&](size_t index) { return std::pair(loops[index].flops, accesses(loops[index])); };
  for (size_t i = 0; i < loops.size(); ++i)
    if (isInnermost(loops[i]) && (!best || rank(i) > rank(*best))) best = i;
  return best;
}
