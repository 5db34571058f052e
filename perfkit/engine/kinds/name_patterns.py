"""Names of operators and annotations by ordered tables of patterns; the first match wins.

Names of kernels are classified by `perfkit.engine.kinds.kernel_rules`.
"""

import re
from functools import lru_cache
from typing import Final

DATA_LOADING: Final = r"enumerate\(DataLoader\)#|perfkit\.data_loading$"

STEP: Final = "ProfilerStep#"
"""What torch calls a step, before its number."""

OPERATORS: Final[tuple[tuple[str, str], ...]] = (
    (r"all_?reduce|cross_device_reduce_\dstage", "all_reduce"),
    (r"all_?to_?all", "all_to_all"),
    (r"reduce_?scatter", "reduce_scatter"),
    (r"all_?gather", "all_gather"),
    (r"broadcast", "broadcast"),
    (r"barrier", "barrier"),
    (r"send_?recv|batch_isend_irecv", "send_recv"),
    (r"recv", "recv"),
    (r"send", "send"),
    (r"gather", "gather"),
    (r"scatter", "scatter"),
    (r"reduce", "reduce"),
    (r"dispatch", "dispatch"),
    (r"combine", "combine"),
)
"""What a collective is called, in whatever spelling, and perfkit's name of it; longer names before their parts."""


@lru_cache(maxsize=1024)
def collective_operator(name: str) -> str | None:
    """Return perfkit's name of the collective in a kernel's, operator's or annotation's name; None if it names none."""
    plain = name.lower()
    return next((operator for pattern, operator in OPERATORS if re.search(pattern, plain)), None)
