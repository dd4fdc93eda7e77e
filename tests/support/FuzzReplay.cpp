// Runs a fuzz harness without libFuzzer: every file of the corpus folders given as arguments, and a fixed number of
// mutations of each, the same in every run.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerFile = 2000;

int run(const std::string& bytes) {
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

/// Flips, overwrites, removes or repeats a few bytes.
std::string mutated(std::string bytes, std::mt19937& random) {
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (size_t edits = 1 + below(4); edits > 0 && !bytes.empty(); --edits) {
    const size_t at = below(bytes.size());
    switch (below(4)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(random());
      break;
    case 2:
      bytes.erase(at, 1 + below(8));
      break;
    default:
      bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(8)));
      break;
    }
  }
  return bytes;
}

} // namespace

int main(int argc, char** argv) {
  std::mt19937 random(1);
  int inputs = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      run(bytes);
      for (int k = 0; k < kMutationsPerFile; ++k) run(mutated(bytes, random));
      inputs += 1 + kMutationsPerFile;
    }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
