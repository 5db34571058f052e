"""Names of the phases of a training step, shared by the workloads, the recorder and the analysis.

The session annotates each phase as `perfkit.<phase>` (a `user_annotation` in the trace); of a script that does not
import perfkit, `perfkit run` annotates forward and backward. The analysis uses only
`perfkit.data_loading` (metrics.md section 2); the others are for people who open the trace.
"""

from typing import Final, Literal

Phase = Literal["data_loading", "to_device", "forward", "backward", "optimizer", "checkpoint", "evaluation", "logging"]
"""The last three are pauses: they belong to no step (metrics.md section 23)."""

PHASE_WORDS: Final[dict[Phase, str]] = {
    "data_loading": "data loading",
    "to_device": "the copy of the batch to the device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "the optimizer's step",
}
"""What the phases are called in sentences."""

INJECTABLE: Final[tuple[Phase, ...]] = ("data_loading", "forward", "backward", "optimizer")
"""Phases that a fault can be injected into."""

PREFIX: Final = "perfkit."


PASS_NAMES: Final = (
    PREFIX,
    "FSDP::",
    "FullyShardedDataParallel.",
    "DistributedDataParallel.",
    "PP:",
    "Forward ",
    "Backward ",
    "Optimizer.step#",
)
"""What annotations of one phase, perfkit's and torch's, begin with."""


def annotation(phase: Phase) -> str:
    """Return the name of the annotation of `phase` in a trace."""
    return PREFIX + phase


PIPELINE_ACTION: Final = PREFIX + "pipeline."
"""Beginning of the annotations of a pipeline's micro-batches."""

ActionKind = Literal["F", "B", "I", "W"]
"""What a stage computes of a micro-batch, as torch abbreviates it: forward; all of backward; its two parts, the
gradients of the input and of the weights."""


def action_annotation(stage: int, kind: ActionKind, micro_batch: int) -> str:
    """Return the name of the annotation of one micro-batch in one stage, such as `perfkit.pipeline.1F0`."""
    return f"{PIPELINE_ACTION}{stage}{kind}{micro_batch}"


DATA_LOADING: Final = annotation("data_loading")
