"""The `with` block around one step."""

from __future__ import annotations

from types import TracebackType

from .controller import Controller


class Step:
    """Begin a step on entry, end it on exit; an exception passes on."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def __enter__(self) -> None:
        self._controller.begin_step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.end_step(failed=kind is not None)
