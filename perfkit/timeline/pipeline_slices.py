"""Slices of a rank's micro-batches and of its bubble, for a separate track.

Perfetto chooses a slice's colour by its name without numbers: all forwards have one colour, and all bubbles another.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.pipeline_actions import PipelineSpans
from perfkit.analysis.per_rank.steps import Steps
from perfkit.timeline.collective_links import Spans

_KINDS: Final = ("forward", "backward", "backward of input", "backward of weights")
"""Names of the kinds of actions, as `perfkit.analysis.per_rank.pipeline_actions.KINDS` orders them."""
BUBBLE: Final = "bubble"


def pipeline_slices(spans: PipelineSpans, steps: Steps, shown: NDArray[np.bool_]) -> Spans:
    """Return the micro-batches and bubbles of the shown steps.

    Args:
        spans: actions and bubble.
        steps: all steps.
        shown: mask of the steps, shape (k,).
    """
    worked = shown[spans.step] & (spans.end > spans.begin)
    step = np.searchsorted(steps.bounds, spans.bubble.start, side="right") - 1
    inside = (step >= 0) & (step < len(shown))
    waited = inside & shown[np.clip(step, 0, len(shown) - 1)]
    names = [
        f"{_KINDS[kind]} {batch}, stage {stage}"
        for stage, kind, batch in zip(*spans.keys[:, worked].tolist(), strict=True)
    ]
    return Spans(
        np.concatenate((spans.begin[worked], spans.bubble.start[waited])),
        np.concatenate((spans.end[worked], spans.bubble.end[waited])),
        names + [BUBBLE] * int(waited.sum()),
    )
