"""Options that `perfkit run WORKLOAD` and `perfkit run SCRIPT` have in common: their types and descriptions."""

from typing import Annotated, Final

from msgspec import Meta

SCHEDULE: Final = "Steps to record, as in torch.profiler.schedule"
TIMEOUT: Final = "Limit of every wait for another rank, for example 90s or 10m"

RecordShapes = Annotated[bool, Meta(description="Record operators' input shapes (costs half a step, and memory).")]
ProfileMemory = Annotated[bool, Meta(description="Record allocations, for memory over the step.")]
WithStack = Annotated[bool, Meta(description="Record Python stacks.")]
WithFlops = Annotated[bool, Meta(description="Estimate operators' FLOPs.")]
WithModules = Annotated[bool, Meta(description="Record the module hierarchy.")]
TraceDir = Annotated[str, Meta(description="Folder in which the run's folder is created.")]
RunName = Annotated[str | None, Meta(description="Name of the run [default: workload, source, ranks and time].")]
