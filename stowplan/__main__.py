"""``python -m stowplan``: the same as the command ``stowplan``."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="stowplan")
