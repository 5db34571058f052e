"""Which function of the program a part of the operators' time is of."""

from collections import defaultdict
from typing import Final

from perfkit.insights.run_context import RunContext
from perfkit.schema.per_rank.work import Work
from perfkit.schema.per_rank.work_trees import merge_work
from perfkit.util.formatting import escape_unprintable

_MOST: Final = 0.5
_WHOLE_SCRIPT: Final = ": <module>"
"""What the names of frames outside of functions end with: they tell no more than the file."""


def most_of_it_in(context: RunContext, part_ns: int) -> str:
    """Return `, most of it in train.py(12): augment`; empty if no function certainly issues most of it.

    Which operators a function calls is not in the report, only their time: of a part of all work, what exceeds the work
    of the others must be the function's.

    Args:
        context: the run.
        part_ns: time of some operators (on a device, of their kernels), summed over ranks and steps.
    """
    work = merge_work(context.run.ranks)
    if work is None:
        return ""
    own_ns = _own_time(work)
    name = max(own_ns, key=lambda one: own_ns[one], default="")
    if not name or own_ns[name] + part_ns - work.total_ns < _MOST * part_ns:
        return ""
    return f", most of it in {escape_unprintable(name)}"


def _own_time(work: Work) -> dict[str, int]:
    """Return the time of what each function of the program issues itself (ns), without those that it calls."""
    own_ns: dict[str, int] = defaultdict(int)
    for tree in work.trees:
        for node in tree.nodes if tree.by == "python" else ():
            if not node.name.startswith("(") and not node.name.endswith(_WHOLE_SCRIPT):
                own_ns[node.name] += node.self_ns
    return own_ns
