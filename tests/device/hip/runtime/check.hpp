// Whether work may use the memory that it was given, at the moment when it runs.
//
// A kernel's arguments have no types here, so each aligned word of 8 bytes in them is looked at: one that lies in the
// range of our addresses is taken for a pointer. (Two 32-bit numbers side by side in a structure can look like one; the
// addresses begin at 0x6b3d00000000 to make that unlikely.) A structure that does not begin with such a word is passed
// over: CuPy's Indexer has words that CuPy never writes, and what they hold may look like the address of a block that
// is gone. The device does not know how far a kernel goes from a pointer: a free page behind each block, and the
// inaccessible pages of freed blocks, stop the kernel.
#pragma once

#include <cstddef>

namespace simhip {

// Reports a fault, and returns false, where work of the device (-1: a copy, of any) may not use the range.
bool check_range(const void* base, std::size_t size, int device);

// The same for an argument's words. `index` is the argument's.
bool check_argument(const void* argument, std::size_t size, std::size_t index, int device);

}  // namespace simhip
