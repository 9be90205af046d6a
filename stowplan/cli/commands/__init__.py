"""The commands of ``stowplan``, one module each. They import what they need when they run."""
