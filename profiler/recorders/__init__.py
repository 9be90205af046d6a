"""Recorders: they watch an allocator without replacing it, and make a `Profile` of a step that repeats.

====================  ==================================================================================================
``recorder``          what all have in common: pairs of equal steps, marked or found, and their profile
``numpy_recorder``    sees NumPy's requests through a memory handler that passes everything on
``cupy_recorder``     is told of CuPy's by a memory hook
``torch_recorder``    sees those of PyTorch's CPU tensors through the allocator of ``torch_library``
``call_sites``        which line of the user's code asked; ``chainer_names``: for which of Chainer's links and functions
====================  ==================================================================================================
"""
