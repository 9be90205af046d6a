"""What PyTorch raises where a step is no graph, as one error that names the program's line."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch
from torch._dynamo import convert_frame
from torch._dynamo.exc import ObservedException
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..errors import GraphError

BY_VALUES = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
"""What is raised where tensors without bytes will not do."""

_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_LIBRARIES = ("<", str(Path(torch.__file__).parent), str(Path(__file__).parent))


def not_captured(error: BaseException) -> GraphError:
    """Return the error in the place of PyTorch's error; it names the program's line, where there is one."""
    text = str(error).strip()
    where = line_of(error, text)
    cause = getattr(error, "inner_exception", None)
    if isinstance(error.__cause__, ObservedException):  # the program's own
        cause = error.__cause__
    what = (str(cause).strip() if cause is not None else text).partition("\n")[0]
    return GraphError(
        f"the step is not one graph{where} ({what or type(error).__name__}); expected PyTorch's operators, on shapes "
        "that do not depend on values"
    )


def is_dynamos(error: BaseException) -> bool:
    """Whether an error comes from Dynamo while it traces: whatever it is, nothing of the step has run."""
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return not isinstance(error, MemoryError) and convert_frame.__file__ in frames


def line_of(error: BaseException, text: str = "") -> str:
    """Return `` at FILE:LINE FUNCTION``, the program's last line in an error's text, or in its traceback."""
    lines = _LINE.findall(text)
    if not text or isinstance(error, BY_VALUES):
        lines += [(one.filename, one.lineno, one.name) for one in traceback.extract_tb(error.__traceback__)]
    lines = [found for found in lines if not found[0].startswith(_LIBRARIES)]
    return " at {}:{} {}".format(*lines[-1]) if lines else ""
