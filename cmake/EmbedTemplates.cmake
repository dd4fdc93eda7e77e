# Writes OUTPUT: a C++ source that defines lathe::embeddedTemplates() from FILES (a list, relative to ROOT).
set(entries "")
foreach(file IN LISTS FILES)
  file(READ ${ROOT}/${file} text)
  file(SHA256 ${ROOT}/${file} digest)
  string(APPEND entries "    {\"${file}\", \"${digest}\", R\"LATHE_TEXT(${text})LATHE_TEXT\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from templates/ by cmake/EmbedTemplates.cmake.
#include \"templates/EmbeddedTemplates.h\"

namespace {
constexpr lathe::EmbeddedTemplate kTemplates[] = {
${entries}};
} // namespace

std::span<const lathe::EmbeddedTemplate> lathe::embeddedTemplates() { return kTemplates; }
")
