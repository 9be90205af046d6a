"""A solver for the order of operators: among those that may run, the one that adds the fewest bytes runs next."""

import numpy as np

from stowplan.scheduling.ordering import Answer, register


@register("fewest_added")
def fewest_added(problem, options):
    """Return an order and no bound. O(n²) operators looked at; every one looks at its own storages."""
    n = len(problem)
    waits_for = [set(row) for row in problem.before.rows()]
    writers, users = problem.writers.rows(), [set(row) for row in problem.users.rows()]
    uses = [[storage for storage in range(len(users)) if i in users[storage]] for i in range(n)]
    order, done = [], set()

    def added(operator):
        """Bytes alive after the operator that were not alive before it; negative where it is a last user."""
        total = 0
        for storage in uses[operator]:
            begun = any(writer in done for writer in writers[storage])
            writes = operator in writers[storage]
            over = users[storage] <= done | {operator} and not problem.kept[storage]
            total += int(problem.size[storage]) * ((writes and not begun and not over) - (begun and over))
        return total

    while len(order) < n:
        ready = [i for i in range(n) if i not in done and waits_for[i] <= done]
        chosen = min(ready, key=lambda i: (added(i), i))
        order.append(chosen)
        done.add(chosen)
    return Answer(np.array(order, dtype=np.int64), lower_bound=0, found_by="fewest_added")
