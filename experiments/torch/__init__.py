"""Networks and models of PyTorch.

==============  ========================================================================================================
``networks``    four networks in plain PyTorch: ResNet-18, a U-Net, a GPT, an LSTM
``session``     steps of a network, with or without a pool, and what they use
==============  ========================================================================================================

And training within budgets, each with a command of its own:

==============  ========================================================================================================
``models``      nine models, most of them of transformers
``training``    steps of a model, plain and by a schedule; their peaks and seconds
``budget``      beside ``activation_memory_budget`` and `torch.utils.checkpoint`
``compiled``    compiled steps, split within budgets
``kept``        rows that a run leaves as it goes
``metered``     compilers for ``torch.compile`` that count what graphs have alive
==============  ========================================================================================================
"""
