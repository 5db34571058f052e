"""Record whether torch.compile compiled anything and in which steps, because it falls back to eager silently."""

from collections.abc import Iterator
from contextlib import contextmanager

from perfkit.base.formatting import text_of
from perfkit.errors import LaunchEnvironmentError
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.records.manifest import Compiled


class CompileMonitor:
    """Counts the graphs that torch compiles, per step."""

    def __init__(self) -> None:
        self._before = _graphs()
        self._steps: list[int] = []

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Record whether anything is compiled in `step`."""
        from torch._dynamo.exc import BackendCompilerFailed

        begin = _graphs()
        try:
            yield
        except BackendCompilerFailed as error:
            cause = next(iter(text_of(error).strip().splitlines()), type(error).__name__)
            advice = "install a C++ compiler (CXX selects it)" if "compiler" in cause.lower() else "see --debug"
            raise LaunchEnvironmentError(
                f"--compile: torch cannot compile the model ({cause}): {advice}, or leave --compile out"
            ) from error
        if _graphs() > begin:
            self._steps.append(step)

    def result(self, ranks: ProcessRankGroup) -> Compiled:
        """Return what was compiled on every rank; called by all of them."""
        by_rank = ranks.all_gather((_graphs() - self._before, self._steps))
        steps = sorted({step for _, own in by_rank for step in own})
        return Compiled(graphs=min(graphs for graphs, _ in by_rank), steps=steps)


def _graphs() -> int:
    # Imported late: the import takes seconds, and only compiled runs need it.
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
