"""A backend: buffers of plain host memory, which the program asks of the pool itself."""

from stowplan.allocator.backends.host_pool import HostPool


class BufferPool(HostPool):
    """Serve buffers, those of repeated steps from a plan."""

    def buffer(self, size):
        """Return a block of this many bytes: a buffer, which is free when nothing holds it any more."""
        return self._host.block(size)

    def _serves_here(self):
        return True  # without being entered

    def _backend(self):
        return "buffers"  # a file of plans for something else is refused
