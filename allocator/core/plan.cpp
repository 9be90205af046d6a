// What follows from the columns of a plan; see plan.hpp.
#include "plan.hpp"

#include <algorithm>
#include <tuple>

namespace stowplan::allocator {

void Plan::derive() {
  wraps.assign(size(), false);
  for (RequestNumber k = 0; k <= size(); ++k) {
    for (std::uint32_t i = due_begin[k]; i < due_begin[k + 1]; ++i) wraps[due[i]] = k <= due[i];
  }
  prefix.assign(1, 0xCBF29CE484222325u);
  whole.clear();
  for (const Bytes size : requested) {
    const std::uint64_t mixed = (prefix.back() ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15u;
    prefix.push_back(mixed ^ (mixed >> 29));
    if (turn == 0 || (prefix.size() - 1) % turn != 0) continue;
    whole.push_back(prefix.back());
    prefix.back() = prefix.front();
  }
}

void Plan::merge(std::vector<Bytes> smallest, const std::vector<std::uint32_t>& at_same_place,
                 const std::vector<std::int64_t>& signs) {
  least = std::move(smallest);
  sign.assign(signs.begin(), signs.end());
  end.assign(size(), static_cast<RequestNumber>(size()));
  landmark.assign(size(), kNoRequest);
  index.clear();
  for (RequestNumber k = 0; k < size(); ++k) {
    for (std::uint32_t i = due_begin[k]; i < due_begin[k + 1]; ++i) {
      const RequestNumber slot = due[i];
      if (slot < k) end[slot] = k;
      if (slot < k && k - slot > kLandmark && at_same_place[slot] != 0) landmark[slot] = k;
    }
  }
  std::vector<std::uint64_t> line(size());  // the last signs
  for (RequestNumber k = 0; k < size(); ++k) {
    for (RequestNumber i = k + 1 - std::min(k + 1, kSigns); i <= k; ++i) {
      line[k] = append(line[k], sign[i] & kYoungest);
    }
    if (k + 1 >= kSigns) index.emplace_back(line[k], k);
  }
  std::sort(index.begin(), index.end());
  sort_slots(line);
  find_users();
}

void Plan::sort_slots(const std::vector<std::uint64_t>& line) {
  std::vector<RequestNumber> order;
  for (RequestNumber k = 0; k < size(); ++k) {
    if (offset[k] != kUnplanned) order.push_back(k);
  }
  std::sort(order.begin(), order.end(), [&](RequestNumber a, RequestNumber b) {
    return std::tuple(line[a], lasting(a), requested[a], a) < std::tuple(line[b], lasting(b), requested[b], b);
  });
  slots.clear();
  alike.assign(size(), {0, 0});
  for (std::uint32_t begin = 0, i = 0; i < order.size(); ++i) {
    const RequestNumber first = order[begin];
    if (line[order[i]] != line[first] || lasting(order[i]) != lasting(first)) begin = i;
    slots.push_back({requested[order[i]], offset[order[i]]});
    alike[order[i]].first = begin;
  }
  for (std::uint32_t i = static_cast<std::uint32_t>(order.size()), end = i; i-- > 0;) {
    alike[order[i]].second = end;
    if (alike[order[i]].first == i) end = i;
  }
}

void Plan::find_users() {
  Bytes extent = 0;
  for (RequestNumber k = 0; k < size(); ++k) extent = std::max(extent, offset[k] + capacity[k]);
  part_bytes = extent / kParts + 1;
  users_begin.assign(kParts + 2, 0);
  const auto each_part = [this](auto&& visit) {
    for (RequestNumber k = 0; k < size(); ++k) {
      if (offset[k] == kUnplanned) continue;
      const Bytes top = offset[k] + capacity[k];
      for (Bytes part = offset[k] / part_bytes; part * part_bytes < top; ++part) visit(k, users_begin[part + 1]);
    }
  };
  each_part([](RequestNumber, std::uint32_t& count) { ++count; });
  std::uint32_t sum = 0;
  for (std::uint32_t& begin : users_begin) begin = std::exchange(sum, sum + begin);
  users.resize(sum);
  each_part([this](RequestNumber k, std::uint32_t& next) { users[next++] = k; });
}

bool Plan::needs(Bytes low, Bytes high, RequestNumber from, RequestNumber until) const {
  while (from < until && !is_within(from, low, high)) ++from;
  return from < until;
}

bool Plan::needs_by_part(Bytes low, Bytes high, RequestNumber from, RequestNumber until) const {
  for (Bytes part = low / part_bytes; part < kParts && part * part_bytes < high; ++part) {
    const auto last = users.begin() + users_begin[part + 1];
    for (auto at = std::lower_bound(users.begin() + users_begin[part], last, from); at != last && *at < until; ++at) {
      if (is_within(*at, low, high)) return true;
    }
  }
  return false;
}

}  // namespace stowplan::allocator
