"""What a reader of a run's figures must know about its compilation."""

from collections.abc import Iterable, Sequence

from perfkit.schema.common import Finding
from perfkit.schema.manifest import Compiled, StepKind
from perfkit.util.formatting import ranges


def compile_findings(compiled: Compiled | None, kinds: Sequence[StepKind]) -> Iterable[Finding]:
    """Yield what is wrong with a run that was to be compiled.

    Args:
        compiled: what was compiled when; None where nothing should be.
        kinds: kind of each step.
    """
    if compiled is None:
        return
    if compiled.graphs == 0:
        message = "--compile compiled nothing: the model ran as it does without it"
        yield Finding(code="not_compiled", severity="warning", message=message)
    if recorded := [step for step in compiled.steps if kinds[step] == "active"]:
        message = (
            f"torch compiled in recorded steps ({ranges(recorded)}): their times are those of compiling; "
            f"let the schedule begin later, with skip_first={recorded[-1] + 1}"
        )
        yield Finding(code="compilation_recorded", severity="warning", message=message)
