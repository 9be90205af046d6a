#pragma once
#include <cstdint>
#include "problem.hpp"
#include "search_control.hpp"
namespace stowplan::packing {
Bytes large(const Problem& problem, const Control& control, Bytes* offset);
}
