"""What all rooms stand on; it imports nothing of the project.

================  ======================================================================================================
module            what it has
================  ======================================================================================================
``errors``        one tree of errors; public as `stowplan.errors`
``files``         files that appear whole or not at all
``archive``       versioned files of arrays, which profiles and plans share
``minimalloc``    google/minimalloc's CSV, which profiles and problems share
``registry``      solvers of one kind by name
``swapping``      arrays in a file; public as `stowplan.swapping`; ``swap_transfers`` moves them
``units``         bytes as people read them
``lazy``          names that are imported when they are first used
``import_hooks``  what to do when a module is first imported
``host_memory``   what the machine and the process's control groups allow
================  ======================================================================================================
"""
