// Pages of the host that stand for memory of a device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simhip {

// Addresses that nothing may touch. Ends the process where the host has not so many.
std::uintptr_t reserve_addresses(std::size_t size);

// Memory in which each element of a floating-point type is NaN. What is not written takes no memory of the host: all of
// it is one file of NaNs, whose pages are copied when they are written.
bool open_pages(std::uintptr_t base, std::size_t size);

// Nothing may touch it from now on; its memory goes back to the host.
void close_pages(std::uintptr_t base, std::size_t size);

// A file of NaNs that can be mapped in several places; -1 where the host has no memory. close() gives it
// back.
int make_file(std::size_t size);

}  // namespace simhip
