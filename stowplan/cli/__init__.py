"""The command ``stowplan``: its commands, and what runs scripts."""
