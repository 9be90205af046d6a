"""PyTorch's steps on the host, under several allocators: ``python -m experiments.torch``.

==============  ========================================================================================================
``networks``    four networks in plain PyTorch: ResNet-18, a U-Net, a GPT, an LSTM
``session``     steps of a network, with or without a pool, and what they use
``worker``      a process that runs turns of such steps, as it is told
``turns``       turns of steps, and what they use: a worker's side
``measure``     a worker for each contestant, in turns
``table``       what was found as a table, and whether it keeps the bounds
==============  ========================================================================================================
"""
