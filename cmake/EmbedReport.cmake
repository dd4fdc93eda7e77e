# Writes OUTPUT: a C++ source that defines lathe::reportAsset() from FILES (a list, relative to ROOT).
set(entries "")
foreach(file IN LISTS FILES)
  file(READ ${ROOT}/${file} text)
  string(APPEND entries "    {\"${file}\", R\"LATHE_TEXT(${text})LATHE_TEXT\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from runtime/inspect/report/ by cmake/EmbedReport.cmake.
#include \"runtime/inspect/ReportAssets.h\"

namespace {
struct Asset {
  llvm::StringLiteral name;
  llvm::StringLiteral text;
};
constexpr Asset kAssets[] = {
${entries}};
} // namespace

llvm::StringRef lathe::reportAsset(llvm::StringRef name) {
  for (const Asset& asset : kAssets)
    if (asset.name == name) return asset.text;
  llvm_unreachable(\"unknown asset\");
}
")
