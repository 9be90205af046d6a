"""``python -m stowplan``: the same as the command ``stowplan``."""

from .cli.entry import main

if __name__ == "__main__":
    main()
