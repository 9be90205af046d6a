"""Programs that know nothing of stowplan, under several allocators: ``python -m experiments.programs``.

==============  ========================================================================================================
``scripts/``    the programs, as a user would write them; each takes its size as an argument and prints a digest
``catalogue``   their names, what they need, and their small sizes
``measure``     one program under each contestant, in turns
==============  ========================================================================================================
"""
