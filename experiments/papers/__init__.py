"""The tables of the papers behind stowplan, ours beside theirs, a module a paper: see ``__main__``."""
