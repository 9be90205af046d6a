"""All kinds of programs: importing this fills `programs.KINDS`."""

from . import (  # noqa: F401
    programs_after_the_step,
    programs_by_call,
    programs_by_hand,
    programs_uncommon,
    programs_with_trainer,
)
