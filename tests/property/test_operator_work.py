"""Of operators that call each other, which count, and whose time is theirs: against a search through the calls."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

import perfkit
from tests.support.traces.shape_traces import inputs
from tests.support.traces.trace_builder import TraceBuilder

KINDS: Final = {
    "aten::mm": (inputs([2, 3], [3, 5]), 60),
    "aten::addmm": (inputs([7], [2, 3], [3, 7]), 84),
    "aten::linear": (inputs([2, 3], [11, 3]), 132),
    "aten::matmul": (inputs([2, 3], [4, 5]), None),  # impossible shapes
    "aten::bmm": (None, None),
    "aten::view": (inputs([2, 3]), None),
}
COMPOSITE: Final = {"aten::linear", "aten::matmul"}


@dataclass
class Call:
    """A call of an operator; it works before, between and after what it calls."""

    name: str
    calls: list["Call"] = field(default_factory=list)

    def __len__(self) -> int:
        return 1 + len(self.calls) + sum(map(len, self.calls))

    def add(self, builder: TraceBuilder, start: int, tid: int) -> int:
        """Add the call to a trace from `start` on, and return its end; one microsecond of its own per gap."""
        at = start + 1
        for call in self.calls:
            at = call.add(builder, at, tid) + 1
        builder.op(self.name, start, at - start, tid, args=KINDS[self.name][0])
        return at

    @property
    def flops(self) -> int | None:
        return KINDS[self.name][1]

    def has_plain(self) -> bool:
        return any((call.flops is not None and call.name not in COMPOSITE) or call.has_plain() for call in self.calls)

    def counted(self) -> list["Call"]:
        """Return the calls that count of this one and those within it, as the definition says."""
        if self.flops is not None and (self.name not in COMPOSITE or not self.has_plain()):
            return [self]
        return [found for call in self.calls for found in call.counted()]


calls = st.recursive(
    st.builds(Call, st.sampled_from(list(KINDS))),
    lambda inner: st.builds(Call, st.sampled_from(list(KINDS)), st.lists(inner, max_size=3)),
    max_leaves=12,
)


@given(st.lists(st.lists(calls, min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_calls_that_count_have_all_of_their_time(threads: list[list[Call]]) -> None:
    builder, longest = TraceBuilder(backend=None), 0
    for tid, of_thread in enumerate(threads, 1):
        at = 0
        for call in of_thread:
            at = call.add(builder, at, tid)
        longest = max(longest, at)
    builder.step(0, 0, longest + 1)
    with TemporaryDirectory() as folder:
        (rank,) = perfkit.analyze(builder.write(Path(folder, "rank0.json")), cache=False).runs[0].ranks
    counted = [found for of_thread in threads for call in of_thread for found in call.counted()]
    work = rank.operator_work
    if work is None:
        assert not any(KINDS[name][0] for of_thread in threads for call in of_thread for name in _names(call))
        return
    assert sum(row.count for row in work.operators) == len(counted)
    assert sum(row.flops for row in work.operators) == sum(call.flops or 0 for call in counted)
    assert sum(row.total_ns for row in work.operators) == 1000 * sum(map(len, counted))
    total = 1000 * sum(len(call) for of_thread in threads for call in of_thread)
    assert work.total_ns == total
    assert sum(row.total_ns for row in work.unmodelled) == total - 1000 * sum(map(len, counted))


def _names(call: Call) -> list[str]:
    return [call.name, *(name for inner in call.calls for name in _names(inner))]
