//===- runtime/compile/Cubin.cpp - Reading compiled kernels ---------------===//
//
// Part of Lathe, under the Apache License, version 2.0. See LICENSE.
//
//===----------------------------------------------------------------------===//
#include "runtime/compile/Cubin.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Object/ELF.h"
#include "llvm/Support/DataExtractor.h"

#include <algorithm>
#include <limits>
#include <optional>

using namespace lathe;

namespace {

using Elf = llvm::object::ELF64LE;

/// The two layouts, told apart by the OS ABI byte of the ELF header.
constexpr uint8_t kOsAbiCuda12 = 0x33;
constexpr uint8_t kOsAbiCuda13 = 0x41;
/// A flag of the ELF header of CUDA 12: code for one architecture alone.
constexpr uint32_t kFlagArchSpecific = 0x800;
/// Bit of a symbol's st_other: a kernel.
constexpr uint8_t kOtherEntry = 0x10;
/// Shared memory that the system reserves in every block, and that the section sizes include, from sm_90 on.
constexpr int64_t kReservedSharedBytes = 1024;
/// No field of a sane cubin is larger.
constexpr uint64_t kSaneBytes = uint64_t(1) << 31;
constexpr const char* kRebuild = "delete the file, which is damaged or foreign, and compile the kernel again";

/// Attributes of .nv.info and .nv.info.<entry>.
enum Attribute : uint8_t {
  kMaxThreads = 0x05,
  kRequiredThreads = 0x10,
  kFrameSize = 0x11,
  kMinStackSize = 0x12,
  kParameterInfo = 0x17,
  kParameterBytes = 0x19,
  kRegisterCount = 0x2f,
  kBarrierCount = 0x4c,
};
/// The one attribute of .nv.compat that matters: the code is for one architecture alone.
constexpr uint8_t kCompatArchSpecific = 0x09;

/// How an attribute's value is stored: none, in one or two bytes, or as a payload of that many bytes.
enum Format : uint8_t { kNoValue = 1, kByteValue = 2, kHalfValue = 3, kSizedValue = 4 };

/// One attribute: `value` for the short formats, `payload` for the sized one.
struct AttributeRecord {
  uint8_t attribute;
  uint16_t value;
  llvm::StringRef payload;
};

/// An error that says what is wrong with a cubin.
llvm::Error corrupt(const llvm::Twine& what) {
  return makeError(ErrorCode::Corrupt, "not a valid cubin: {0}; {1}", what.str(), kRebuild);
}

llvm::Error corrupt(llvm::Error error) {
  return corrupt(takeSummary(std::move(error)).message);
}

/// A 32-bit word of `payload`.
uint32_t word(llvm::StringRef payload, size_t index) {
  return llvm::support::endian::read32le(payload.data() + 4 * index);
}

/// Splits a section of attributes.
llvm::Expected<std::vector<AttributeRecord>> parseAttributes(llvm::StringRef section, llvm::StringRef name) {
  std::vector<AttributeRecord> records;
  while (!section.empty()) {
    if (section.size() < 4) return corrupt("section " + name + " ends within an attribute");
    uint8_t format = static_cast<uint8_t>(section[0]);
    AttributeRecord record{static_cast<uint8_t>(section[1]), llvm::support::endian::read16le(section.data() + 2), {}};
    section = section.drop_front(4);
    if (format < kNoValue || format > kSizedValue)
      return corrupt("section " + name + " has an attribute of the unknown format " + llvm::Twine(format));
    if (format == kByteValue) record.value &= 0xff;
    if (format == kSizedValue) {
      if (record.value > section.size()) return corrupt("section " + name + " has an attribute that passes its end");
      record.payload = section.take_front(record.value);
      section = section.drop_front(record.value);
    }
    records.push_back(record);
  }
  return records;
}

/// A kernel's symbol.
struct EntrySymbol {
  llvm::StringRef name;
  uint32_t index;
  uint32_t section;
};

/// The parsed tables of one cubin.
class CubinFile {
public:
  static llvm::Expected<CubinFile> open(llvm::StringRef bytes);

  std::vector<EntrySymbol> entries() const;
  llvm::Expected<CubinInfo> info(llvm::StringRef entry) const;
  /// Empty where there is no such section, or where it has no bytes in the file.
  llvm::Expected<llvm::StringRef> contents(llvm::StringRef name) const;

private:
  explicit CubinFile(llvm::object::ELFFile<Elf> elf) : elf_(std::move(elf)) {}

  llvm::Error readSections();
  llvm::Error readSymbols();
  llvm::Error readArchitecture();

  const Elf::Shdr* section(llvm::StringRef name) const;
  /// The attributes of a section; none where there is no such section.
  llvm::Expected<std::vector<AttributeRecord>> attributes(llvm::StringRef name) const;
  llvm::Expected<int64_t> sectionBytes(llvm::StringRef name) const;
  /// Whether the symbol `index` is a function in the section `text`.
  bool liesIn(uint32_t index, uint32_t text) const;

  llvm::Error readCode(const EntrySymbol& entry, CubinInfo& info) const;
  llvm::Error readCommonAttributes(const EntrySymbol& entry, CubinInfo& info) const;
  llvm::Error readEntryAttributes(const EntrySymbol& entry, CubinInfo& info) const;

  llvm::object::ELFFile<Elf> elf_;
  llvm::ArrayRef<Elf::Shdr> sections_;
  std::vector<llvm::StringRef> sectionNames_;
  llvm::ArrayRef<Elf::Sym> symbols_;
  llvm::StringRef symbolNames_;
  int sm_ = 0;
  bool archSpecific_ = false;
};

llvm::Expected<CubinFile> CubinFile::open(llvm::StringRef bytes) {
  llvm::Expected<llvm::object::ELFFile<Elf>> elf = llvm::object::ELFFile<Elf>::create(bytes);
  if (!elf) return corrupt(elf.takeError());
  CubinFile file(std::move(*elf));
  const Elf::Ehdr& header = file.elf_.getHeader();
  if (!header.checkMagic()) return corrupt("it does not begin as an ELF file");
  if (header.getFileClass() != llvm::ELF::ELFCLASS64 || header.getDataEncoding() != llvm::ELF::ELFDATA2LSB)
    return corrupt("it is no 64-bit little-endian ELF file");
  if (header.e_machine != llvm::ELF::EM_CUDA)
    return corrupt("it is an ELF file for machine " + llvm::Twine(header.e_machine) + ", not for CUDA (190)");
  if (llvm::Error error = file.readSections()) return corrupt(std::move(error));
  if (llvm::Error error = file.readSymbols()) return corrupt(std::move(error));
  if (llvm::Error error = file.readArchitecture()) return error;
  return file;
}

llvm::Error CubinFile::readSections() {
  llvm::Expected<llvm::ArrayRef<Elf::Shdr>> sections = elf_.sections();
  if (!sections) return sections.takeError();
  sections_ = *sections;
  for (const Elf::Shdr& header : sections_) {
    llvm::Expected<llvm::StringRef> name = elf_.getSectionName(header);
    if (!name) return name.takeError();
    sectionNames_.push_back(*name);
  }
  return llvm::Error::success();
}

llvm::Error CubinFile::readSymbols() {
  const Elf::Shdr* table = llvm::find_if(sections_, [](auto& s) { return s.sh_type == llvm::ELF::SHT_SYMTAB; });
  if (table == sections_.end())
    return makeError(ErrorCode::Corrupt, "it has no symbol table (of {0} sections)", sections_.size());
  llvm::Expected<Elf::SymRange> symbols = elf_.symbols(table);
  if (!symbols) return symbols.takeError();
  symbols_ = *symbols;
  llvm::Expected<llvm::StringRef> names = elf_.getStringTableForSymtab(*table, sections_);
  if (!names) return names.takeError();
  symbolNames_ = *names;
  return llvm::Error::success();
}

llvm::Error CubinFile::readArchitecture() {
  const Elf::Ehdr& header = elf_.getHeader();
  uint8_t osAbi = header.e_ident[llvm::ELF::EI_OSABI];
  uint32_t flags = header.e_flags;
  if (osAbi == kOsAbiCuda12) {
    sm_ = flags & 0xff;
    archSpecific_ = flags & kFlagArchSpecific;
    return llvm::Error::success();
  }
  if (osAbi != kOsAbiCuda13)
    return makeError(
        ErrorCode::Unsupported,
        "the cubin has the layout 0x{0:x-}, but 0x33 (CUDA 12) or 0x41 (CUDA 13) was expected; use an NVRTC "
        "of these versions",
        osAbi);
  sm_ = flags >> 8 & 0xff;
  llvm::Expected<std::vector<AttributeRecord>> records = attributes(".nv.compat");
  if (!records) return records.takeError();
  archSpecific_ = llvm::any_of(*records, [](const AttributeRecord& record) {
    return record.attribute == kCompatArchSpecific && record.value == 1;
  });
  return llvm::Error::success();
}

const Elf::Shdr* CubinFile::section(llvm::StringRef name) const {
  auto found = llvm::find(sectionNames_, name);
  return found == sectionNames_.end() ? nullptr : &sections_[found - sectionNames_.begin()];
}

llvm::Expected<std::vector<AttributeRecord>> CubinFile::attributes(llvm::StringRef name) const {
  const Elf::Shdr* header = section(name);
  if (!header) return std::vector<AttributeRecord>();
  llvm::Expected<llvm::ArrayRef<uint8_t>> contents = elf_.getSectionContents(*header);
  if (!contents) return corrupt(contents.takeError());
  return parseAttributes(llvm::toStringRef(*contents), name);
}

llvm::Expected<llvm::StringRef> CubinFile::contents(llvm::StringRef name) const {
  const Elf::Shdr* header = section(name);
  if (!header || header->sh_type == llvm::ELF::SHT_NOBITS) return llvm::StringRef();
  llvm::Expected<llvm::ArrayRef<uint8_t>> contents = elf_.getSectionContents(*header);
  if (!contents) return corrupt(contents.takeError());
  return llvm::toStringRef(*contents);
}

llvm::Expected<int64_t> CubinFile::sectionBytes(llvm::StringRef name) const {
  const Elf::Shdr* header = section(name);
  if (!header) return 0;
  if (header->sh_size >= kSaneBytes)
    return corrupt("section " + name + " claims " + llvm::Twine(uint64_t(header->sh_size)) + " bytes");
  return static_cast<int64_t>(header->sh_size);
}

bool CubinFile::liesIn(uint32_t index, uint32_t text) const {
  return index < symbols_.size() && symbols_[index].getType() == llvm::ELF::STT_FUNC &&
         symbols_[index].st_shndx == text;
}

std::vector<EntrySymbol> CubinFile::entries() const {
  std::vector<EntrySymbol> found;
  for (uint32_t index = 0; index < symbols_.size(); ++index) {
    const Elf::Sym& symbol = symbols_[index];
    if (symbol.getType() != llvm::ELF::STT_FUNC || !(symbol.st_other & kOtherEntry)) continue;
    llvm::Expected<llvm::StringRef> name = symbol.getName(symbolNames_);
    if (!name) {
      // A kernel whose name lies outside the table cannot be asked for.
      llvm::consumeError(name.takeError());
      continue;
    }
    found.push_back({*name, index, symbol.st_shndx});
  }
  return found;
}

llvm::Error CubinFile::readCode(const EntrySymbol& entry, CubinInfo& info) const {
  std::string suffix = "." + entry.name.str();
  const Elf::Shdr* text = section(".text" + suffix);
  if (!text || text != sections_.begin() + entry.section)
    return corrupt("the kernel '" + entry.name + "' has no code section");
  llvm::Expected<llvm::ArrayRef<uint8_t>> code = elf_.getSectionContents(*text);
  if (!code) return corrupt(code.takeError());
  info.codeBytes = static_cast<int64_t>(code->size());
  info.registers = static_cast<int>(text->sh_info >> 24);
  info.barriers = static_cast<int>(text->sh_flags >> 20 & 0x7f);

  llvm::Expected<int64_t> shared = sectionBytes(".nv.shared" + suffix);
  if (!shared) return shared.takeError();
  info.sharedBytes = sm_ >= 90 ? std::max<int64_t>(*shared - kReservedSharedBytes, 0) : *shared;
  llvm::Expected<int64_t> constant = sectionBytes(".nv.constant0" + suffix);
  if (!constant) return constant.takeError();
  info.constantBytes = *constant;
  return llvm::Error::success();
}

llvm::Error CubinFile::readCommonAttributes(const EntrySymbol& entry, CubinInfo& info) const {
  llvm::Expected<std::vector<AttributeRecord>> records = attributes(".nv.info");
  if (!records) return records.takeError();
  for (const AttributeRecord& record : *records) {
    if (record.payload.size() < 8) continue;
    uint32_t symbol = word(record.payload, 0);
    uint32_t value = word(record.payload, 1);
    if (record.attribute == kRegisterCount && symbol == entry.index) {
      if (value > 0xff) return corrupt("the kernel '" + entry.name + "' claims " + llvm::Twine(value) + " registers");
      info.registers = static_cast<int>(value);
    }
    // A frame of a function beside the kernel counts; the least stack of the kernel includes all that it calls.
    bool ofStack = (record.attribute == kFrameSize && liesIn(symbol, entry.section)) ||
                   (record.attribute == kMinStackSize && symbol == entry.index);
    if (ofStack) info.localBytes = std::max<int64_t>(info.localBytes, value);
  }
  return llvm::Error::success();
}

llvm::Error CubinFile::readEntryAttributes(const EntrySymbol& entry, CubinInfo& info) const {
  llvm::Expected<std::vector<AttributeRecord>> records = attributes(".nv.info." + entry.name.str());
  if (!records) return records.takeError();
  std::vector<std::pair<uint32_t, CubinParameter>> parameters;
  for (const AttributeRecord& record : *records) {
    bool threads = record.attribute == kMaxThreads || record.attribute == kRequiredThreads;
    if (threads && record.payload.size() >= 12) {
      uint64_t product = 1;
      for (int axis : {0, 1, 2}) product *= std::min<uint32_t>(word(record.payload, axis), 1 << 16);
      if (product >= kSaneBytes)
        return corrupt("the kernel '" + entry.name + "' claims " + llvm::Twine(product) + " threads");
      info.maxThreads = static_cast<int>(product);
    } else if (record.attribute == kParameterInfo && record.payload.size() >= 12) {
      // Words: an index, the ordinal and the offset as two halves, flags with the size in the upper 14 bits.
      uint32_t place = word(record.payload, 1);
      uint32_t flags = word(record.payload, 2);
      parameters.push_back({place & 0xffff, {static_cast<int>(place >> 16), static_cast<int>(flags >> 18)}});
    } else if (record.attribute == kParameterBytes) {
      info.parameterBytes = record.value;
    } else if (record.attribute == kBarrierCount) {
      info.barriers = record.value;
    }
  }
  llvm::sort(parameters, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [ordinal, parameter] : parameters) info.parameters.push_back(parameter);
  return llvm::Error::success();
}

llvm::Expected<CubinInfo> CubinFile::info(llvm::StringRef name) const {
  std::vector<EntrySymbol> all = entries();
  auto entry = llvm::find_if(all, [&](const EntrySymbol& symbol) { return symbol.name == name; });
  if (entry == all.end()) {
    std::string list = llvm::join(llvm::map_range(all, [](auto& symbol) { return symbol.name; }), ", ");
    return makeError(ErrorCode::Corrupt, "the cubin has no kernel '{0}', only: {1}; ask for one of these, or {2}", name,
                     list.empty() ? "none" : list, kRebuild);
  }
  CubinInfo info;
  info.sm = sm_;
  info.archSpecific = archSpecific_;
  if (llvm::Error error = readCode(*entry, info)) return error;
  if (llvm::Error error = readCommonAttributes(*entry, info)) return error;
  if (llvm::Error error = readEntryAttributes(*entry, info)) return error;
  return info;
}

} // namespace

llvm::Expected<std::vector<std::string>> lathe::readCubinEntries(llvm::StringRef bytes) {
  llvm::Expected<CubinFile> file = CubinFile::open(bytes);
  if (!file) return file.takeError();
  std::vector<std::string> names;
  for (const EntrySymbol& entry : file->entries()) names.push_back(entry.name.str());
  return names;
}

llvm::Expected<CubinInfo> lathe::readCubin(llvm::StringRef bytes, llvm::StringRef entry) {
  llvm::Expected<CubinFile> file = CubinFile::open(bytes);
  if (!file) return file.takeError();
  return file->info(entry);
}

llvm::Expected<llvm::StringRef> lathe::readCubinSection(llvm::StringRef bytes, llvm::StringRef name) {
  llvm::Expected<CubinFile> file = CubinFile::open(bytes);
  if (!file) return file.takeError();
  return file->contents(name);
}
