//===- runtime/cache/Tar.cpp - Archives of small files ----------------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/cache/Tar.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace lathe;

namespace {

constexpr size_t kBlock = 512;

/// A header block. Numbers are octal text.
struct Header {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char major[8];
  char minor[8];
  char prefix[155];
  char unused[12];
};
static_assert(sizeof(Header) == kBlock);

constexpr char kPlainFile = '0';

template <size_t Size> void putOctal(char (&field)[Size], uint64_t value) {
  for (size_t i = Size - 1; i-- > 0; value >>= 3) field[i] = static_cast<char>('0' + (value & 7));
  field[Size - 1] = '\0';
}

/// The text of a field: up to its first zero byte.
template <size_t Size> llvm::StringRef textOf(const char (&field)[Size]) {
  return llvm::StringRef(field, Size).split('\0').first;
}

template <size_t Size> bool readOctal(const char (&field)[Size], uint64_t& value) {
  return !textOf(field).trim(' ').getAsInteger(8, value);
}

/// The sum of the header's bytes with the checksum itself as spaces.
uint64_t checksumOf(Header header) {
  std::memset(header.checksum, ' ', sizeof(header.checksum));
  uint64_t sum = 0;
  for (const unsigned char byte : llvm::StringRef(reinterpret_cast<const char*>(&header), kBlock).bytes()) sum += byte;
  return sum;
}

/// Splits a path into `prefix/name` as the format wants it; false when it does not fit.
bool putPath(Header& header, llvm::StringRef path) {
  llvm::StringRef prefix, name = path;
  while (name.size() > sizeof(header.name)) {
    const size_t slash = path.find('/', prefix.empty() ? 0 : prefix.size() + 1);
    if (slash == llvm::StringRef::npos) return false;
    prefix = path.take_front(slash);
    name = path.drop_front(slash + 1);
  }
  if (prefix.size() > sizeof(header.prefix) || name.empty()) return false;
  llvm::copy(prefix, header.prefix);
  llvm::copy(name, header.name);
  return true;
}

size_t paddingOf(size_t size) {
  return (kBlock - size % kBlock) % kBlock;
}

llvm::Error corrupt(size_t offset, llvm::StringRef what) {
  return makeError(ErrorCode::Corrupt, "the archive is damaged at byte {0}: {1}", offset, what);
}

bool isZero(llvm::StringRef block) {
  return llvm::all_of(block, [](char byte) { return byte == '\0'; });
}

} // namespace

llvm::Expected<std::string> lathe::writeTar(const std::vector<TarFile>& files) {
  std::string archive;
  for (const TarFile& file : files) {
    Header header{};
    if (!putPath(header, file.path))
      return makeError(ErrorCode::InvalidArgument, "the path {0} is too long for an archive", file.path);
    putOctal(header.mode, 0644);
    putOctal(header.uid, 0);
    putOctal(header.gid, 0);
    putOctal(header.size, file.contents.size());
    putOctal(header.mtime, 0);
    header.type = kPlainFile;
    std::memcpy(header.magic, "ustar", 6);
    std::memcpy(header.version, "00", 2);
    putOctal(header.checksum, checksumOf(header));
    archive.append(reinterpret_cast<const char*>(&header), kBlock);
    archive.append(file.contents.data(), file.contents.size());
    archive.append(paddingOf(file.contents.size()), '\0');
  }
  archive.append(2 * kBlock, '\0');
  return archive;
}

llvm::Expected<std::vector<TarFile>> lathe::readTar(llvm::StringRef bytes) {
  std::vector<TarFile> files;
  size_t offset = 0;
  while (true) {
    if (bytes.size() - offset < kBlock) return corrupt(offset, "it ends without its end mark");
    const llvm::StringRef block = bytes.substr(offset, kBlock);
    if (isZero(block)) return files;
    Header header;
    std::memcpy(&header, block.data(), kBlock);
    uint64_t sum = 0, size = 0;
    if (llvm::StringRef(header.magic, 5) != "ustar") return corrupt(offset, "there is no header of a ustar archive");
    if (!readOctal(header.checksum, sum) || sum != checksumOf(header))
      return corrupt(offset, "the header's checksum is wrong");
    if (header.type != kPlainFile) return corrupt(offset, "the entry is no plain file");
    if (!readOctal(header.size, size)) return corrupt(offset, "the size is no number");
    offset += kBlock;
    if (size > bytes.size() - offset) return corrupt(offset, "the file goes on past the end");
    const llvm::StringRef prefix = textOf(header.prefix), name = textOf(header.name);
    files.push_back({(prefix + (prefix.empty() ? "" : "/") + name).str(), bytes.substr(offset, size)});
    offset += size;
    if (paddingOf(size) > bytes.size() - offset) return corrupt(offset, "it ends without its end mark");
    offset += paddingOf(size);
  }
}
