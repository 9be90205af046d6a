#include "pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace simhip {

namespace {

constexpr std::size_t kChunk = std::size_t{16} << 20;
constexpr std::uintptr_t kWanted = 0x6b3d00000000;  // easy to tell from the host's addresses, and an unlikely number
constexpr int kPrivate = MAP_PRIVATE | MAP_NORESERVE;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

bool fill(int file, std::size_t size) {
  const std::vector<char> nans(std::min(size, kChunk), '\xff');
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = pwrite(file, nans.data(), std::min(nans.size(), size - done), static_cast<off_t>(done));
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

int chunk_of_nans() {
  static const int file = make_file(kChunk);
  return file;
}

}  // namespace

std::uintptr_t reserve_addresses(std::size_t size) {
  void* at = mmap(pointer(kWanted), size, PROT_NONE, kPrivate | MAP_ANONYMOUS, -1, 0);  // elsewhere, if taken
  if (at == MAP_FAILED) {
    std::fprintf(stderr, "simhip: no %zu bytes of addresses: choose a smaller SIMHIP_ADDRESS_SPACE\n", size);
    std::_Exit(2);
  }
  return reinterpret_cast<std::uintptr_t>(at);
}

bool open_pages(std::uintptr_t base, std::size_t size) {
  for (std::size_t done = 0; done < size; done += kChunk) {
    const std::size_t part = std::min(kChunk, size - done);
    if (mmap(pointer(base + done), part, PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, chunk_of_nans(), 0) ==
        MAP_FAILED) {
      close_pages(base, done);
      return false;
    }
  }
  return true;
}

void close_pages(std::uintptr_t base, std::size_t size) {
  if (size != 0) mmap(pointer(base), size, PROT_NONE, kPrivate | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int make_file(std::size_t size) {
  const int file = memfd_create("simhip", MFD_CLOEXEC);
  if (file < 0) return -1;
  if (fill(file, size)) return file;
  close(file);
  return -1;
}

}  // namespace simhip
