// An owner of a pool's lanes (device.hpp) that fails now and then, whatever the device does.
#pragma once

#include <atomic>
#include <functional>

#include "device_pool.hpp"

namespace simulated {

using namespace stowplan::allocator;

// The owner of a pool's lanes, between them and the device: each call of it may fail, but for waits, which the device
// lets fail.
class Owner {
 public:
  explicit Owner(DevicePool& pool) : pool_(pool), inner_(pool.owner()) {
    Device device = inner_;
    device.owner = this;
    wrap<&Device::ask>(device, &Device::ask);
    wrap<&Device::trim>(device, &Device::trim);
    wrap<&Device::room>(device, &Device::room);
    wrap<&Device::note_arenas>(device, &Device::note_arenas);
    wrap<&Device::capturing>(device, &Device::capturing);
    wrap<&Device::synchronize>(device, &Device::synchronize);
    wrap<&Device::record>(device, &Device::record);
    wrap<&Device::done>(device, &Device::done);
    wrap<&Device::wait, false, true>(device, &Device::wait);
    wrap<&Device::unguard, false>(device, &Device::unguard);
    wrap<&Device::drop, false>(device, &Device::drop);
    wrap<&Device::forget_error, false>(device, &Device::forget_error);
    pool.connect(device);
  }
  ~Owner() { pool_.connect(inner_); }

  std::atomic<unsigned> fault_rate{0};        // one call in so many fails
  std::function<void()> finalizer = [] {};    // runs within calls
  std::function<void()> before_wait = [] {};  // runs before a stream is told to wait

 private:
  template <auto member, bool may_fail = true, bool is_wait = false, class R, class... A>
  void wrap(Device& device, R (*Device::*)(void*, A...)) {
    device.*member = [](void* owner, A... arguments) -> R {
      Owner& self = *static_cast<Owner*>(owner);
      self.pool_.lanes()->counters();
      self.finalizer();
      if constexpr (is_wait) self.before_wait();
      if constexpr (may_fail) {
        if (self.fault_rate != 0 && ++self.calls_ % self.fault_rate == 0) return -1;
      }
      return (self.inner_.*member)(self.inner_.owner, arguments...);
    };
  }

  DevicePool& pool_;
  const Device inner_;
  std::atomic<unsigned> calls_{0};
};

}  // namespace simulated
