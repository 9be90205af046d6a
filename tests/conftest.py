"""Hypothesis without deadlines: they are assertions about time, and fail where the machine is busy."""

from hypothesis import settings

settings.register_profile("stowplan", deadline=None)
settings.load_profile("stowplan")
