"""What programs take of a GPU, and how long, under several allocators: see `experiments.gpu.__main__`."""
