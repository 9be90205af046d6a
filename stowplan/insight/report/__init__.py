"""The report: one HTML file that shows the memory of a step, opens offline, and answers to pointer and keyboard."""

from .page import require_bokeh, save_report

__all__ = ["require_bokeh", "save_report"]
