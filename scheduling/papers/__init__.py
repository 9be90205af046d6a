"""Systems of other papers, to compare with; nothing else imports them.

``joint``       order and addresses together, as OLLA has them one after the other
``joint_ilp``   OLLA's integer program, for both at once
``layers``      NNTrainer's step from a list of layers, as a step graph
"""
