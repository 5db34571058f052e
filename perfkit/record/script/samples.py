"""How many samples a rank of a script trains on in a step: told, or inferred from its DataLoader or its model's inputs.

Both are counted in the first steps after step 0, which must agree. The DataLoader is preferred: it knows what a sample
is, while the first dimension of a model's input may be another (time, for some recurrent networks). Inputs are seen
only in recorded steps: modules that are compiled while their calls are hooked are compiled again once they are not.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.utils.data import dataloader

from perfkit.record.patching import Function, wrap_function
from perfkit.record.script.replica_checks import ReplicaChecks
from perfkit.records.manifest import ReplicaCheck, SamplesFrom

COUNTED_STEPS: Final = 4
"""Step 0, which may have more batches (an evaluation, a loader that reads ahead), and three that must agree."""


class StepSamples(Struct, frozen=True, kw_only=True):
    """The samples of a step of one rank, or why they are unknown."""

    count: int | None = None
    source: SamplesFrom | None = None
    reason: str | None = None


UNKNOWN_SAMPLES: Final = StepSamples()


class SampleCounter:
    """Counts the samples of the steps of this process."""

    def __init__(self, given: int | None, checks: ReplicaChecks) -> None:
        self.checks = checks
        self._option = given
        self._given = self._times_given = 0
        self._given_in_step: int | None = None
        self._batches: list[dict[int, int | None]] = []
        self._inputs: list[dict[int, int | None]] = []
        self._undo: Callable[[], None] | None = None
        self._begin_step()

    @property
    def is_counting(self) -> bool:
        """Whether batches and inputs are to be noted: in the first steps."""
        return len(self._batches) <= COUNTED_STEPS

    def attach(self) -> None:
        """Count the batches of torch's data loaders, as long as wanted."""

        def around(following: Function) -> Function:
            def hooked(iterator: Any) -> Any:
                batch = following(iterator)
                with suppress(Exception):  # the outermost boundary: beyond it is the script
                    self.note_batch(iterator, batch)
                return batch

            return hooked

        self._undo = wrap_function(dataloader._BaseDataLoaderIter, "__next__", around)

    def note_batch(self, iterator: Any, batch: Any = None) -> None:
        """Note a batch of a loader; one that is loaded without gradients is not trained on."""
        if self.is_counting and torch.is_grad_enabled():
            _add(self._batches[-1], id(iterator._index_sampler), _batch_size(iterator))
            self.checks.note_batch(batch)

    def note_inputs(self, module: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Note what a forward pass begins with; one without gradients, or of a model that is evaluated, is none."""
        if torch.is_grad_enabled() and vars(module).get("training", True):
            with suppress(Exception):  # as above: a tensor may be of a class of the script's
                inputs = *arguments, *named.values()
                if self.is_counting:
                    _add(self._inputs[-1], id(module), _first_dimension(inputs))
                self.checks.note_inputs(inputs)

    def note_given(self, samples: int | None) -> None:
        """Note what `perfkit.step(samples=…)` says of the step that it ends."""
        with suppress(TypeError):  # no whole number
            self._given_in_step = None if samples is None else max(1, operator.index(samples))

    def end_step(self) -> None:
        if self._given_in_step is not None:
            self._given += self._given_in_step
            self._times_given += 1
            self._given_in_step = None
        self.checks.end_step()
        if self.is_counting:
            self._begin_step()
        if not self.is_counting and self._undo is not None:
            self._undo()
            self._undo = None

    def result(self) -> StepSamples:
        """Return the samples of a step as far as they are known by now."""
        if self._option is not None:
            return StepSamples(count=self._option, source="told")
        if self._times_given:
            return StepSamples(count=round(self._given / self._times_given), source="told")
        for counted, source in ((self._batches, "loader"), (self._inputs, "forward")):
            if (count := _agreed(counted)) is not None:
                return StepSamples(count=count, source=source)  # type: ignore[arg-type]  # one of them
        return StepSamples(reason=self._why_unknown())

    def check(self) -> ReplicaCheck | None:
        """Return what shows whether the ranks are replicas, as far as it is known by now."""
        loaded = _agreed(self._batches)
        return self.checks.result(is_whole_batch=loaded is not None and loaded == _agreed(self._inputs))

    def _begin_step(self) -> None:
        self._batches.append({})
        self._inputs.append({})

    def _why_unknown(self) -> str:
        counted = [sizes for sizes in _counted(self._inputs) if sizes]
        if not counted:
            return "no DataLoader and no forward pass of a module shows it"
        known = [set(sizes.values()) for sizes in counted]
        if any(None in sizes or len(sizes) > 1 for sizes in known):
            return "the inputs of the model differ in their first dimension"
        numbers = [sizes.pop() for sizes in known]
        if len(set(numbers)) == 1:
            return "not every step has a forward pass of a module"
        return f"steps have different numbers: {', '.join(map(str, numbers))}"


def _add(sizes: dict[int, int | None], key: int, size: int | None) -> None:
    """Add to what a loader or module has had in this step; unknown with an unknown part."""
    before = sizes.get(key, 0)
    sizes[key] = None if size is None or before is None else before + size


def _counted(steps: list[dict[int, int | None]]) -> list[dict[int, int | None]]:
    """Return the steps that have ended, without step 0 if there are others."""
    return steps[1:-1] or steps[:1]


def _agreed(steps: list[dict[int, int | None]]) -> int | None:
    """Return the samples of a step if every loader or module and every step has the same number; else None."""
    sizes = {size for step in _counted(steps) for size in (set(step.values()) or {None})}
    only = sizes.pop() if len(sizes) == 1 else None
    return only or None


def _batch_size(iterator: Any) -> int | None:
    """Return the batch size of a loader's iterator; None if its dataset or sampler makes batches in its own way."""
    sampler = iterator._index_sampler
    size = getattr(sampler, "batch_size", None) if iterator._auto_collation else None
    if not isinstance(size, int) or size < 1:
        return None
    with suppress(TypeError, AttributeError, NotImplementedError):
        size = min(size, len(sampler.sampler))  # fewer samples than a batch
    return size


def _first_dimension(inputs: tuple[Any, ...]) -> int | None:
    """Return the first dimension that all input tensors share; None if they differ, or there are none."""
    with torch._C.DisableTorchFunction():
        sizes = {tensor.shape[0] for tensor in _tensors_in(inputs) if tensor.dim()}
    return sizes.pop() if len(sizes) == 1 else None


def _tensors_in(inputs: tuple[Any, ...]) -> Iterator[Tensor]:
    """Yield the tensors of a call, and of the mappings (batches by name) in it."""
    for one in inputs:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, Mapping):
            yield from (value for value in one.values() if isinstance(value, Tensor))
