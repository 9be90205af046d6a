"""The papers' tables and figures, and benchmarks against peers. They use the public face of stowplan only."""
