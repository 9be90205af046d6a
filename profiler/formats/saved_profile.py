"""stowplan's own files of profiles: what `Profile.save` writes, with nothing lost."""

from __future__ import annotations

from ..profile import Profile
from .registry import Format, register

register(
    Format(
        "profile",
        "what stowplan profile writes",
        suffixes=(".profile", ".npz"),
        recognizes=lambda head: head.startswith(b"PK"),  # a ZIP archive, as all of NumPy's .npz
        read=lambda path, device: Profile.load(path),
        write=lambda path, profile, offsets: profile.save(path),
    )
)
