"""What PyTorch raises where a step is no graph, as one error that names the program's line."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch
from torch.fx import Node

from ..common.errors import GraphError
from .seams import BY_VALUES, exc, is_dynamos_file

_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_LIBRARIES = ("<", str(Path(torch.__file__).parent), str(Path(__file__).parent))

KNOWN = {
    "Random.": "it draws from Python's random, and a graph would have one number for all steps; expected a number that "
    "the step is called with",
    "aten._ctc_loss": "ctc_loss has a shape that depends on the values of the lengths; expected another loss, or "
    "stowplan.torch.compile_backend for the model without it",
    "in multi_head_attention_forward)": "the values of a mask decide whether it is causal; expected is_causal=True or "
    "False beside mask=",
    "in gaussian_nll_loss)": "gaussian_nll_loss looks at the values of the variances; expected its formula",
    "FloatTrueDiv(1.0": "batch normalization with momentum=None divides by its number of batches, which no "
    "graph knows; expected a momentum",
}
"""Reasons and ways round, by what PyTorch's error has in it."""


def not_captured(error: BaseException) -> GraphError:
    """Return the error in the place of PyTorch's error; it names the program's line, where there is one."""
    text = str(error).strip()
    where = line_of(error, text)
    cause = getattr(error, "inner_exception", None)
    if isinstance(error.__cause__, exc.ObservedException):  # the program's own
        cause = error.__cause__
    for sign, reason in KNOWN.items():
        if sign in text:
            return GraphError(f"the step is not one graph{where}: {reason}")
    what = (str(cause).strip() if cause is not None else text).partition("\n")[0]
    return GraphError(
        f"the step is not one graph{where} ({what or type(error).__name__}); expected PyTorch's operators, on shapes "
        "that do not depend on values; what the model's first call sets up is there after one plain call"
    )


def line_at(node: Node) -> str:
    """Return `` at FILE:LINE FUNCTION``, the program's line that a node is of, if PyTorch knows it."""
    text = node.meta.get("stack_trace")
    return line_of(GraphError(), text) if text else ""


def is_dynamos(error: BaseException) -> bool:
    """Whether an error comes from Dynamo while it traces: whatever it is, nothing of the step has run."""
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return not isinstance(error, MemoryError) and any(map(is_dynamos_file, frames))


def line_of(error: BaseException, text: str = "") -> str:
    """Return `` at FILE:LINE FUNCTION``, the program's last line in an error's text, or in its traceback."""
    lines = _LINE.findall(text)
    if not text or isinstance(error, BY_VALUES):
        lines += [(one.filename, one.lineno, one.name) for one in traceback.extract_tb(error.__traceback__)]
    lines = [found for found in lines if not found[0].startswith(_LIBRARIES)]
    return " at {}:{} {}".format(*lines[-1]) if lines else ""
