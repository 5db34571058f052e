"""Collect what the subjects cost, and rank it by potential saving."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec import convert
from msgspec.structs import asdict

from perfkit.engine.losses.context import MIN_SHARE, LossContext, loss_context, stragglers_of
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.subject import Subject
from perfkit.errors import PluginError
from perfkit.plugins import resolve
from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.common import Observation
from perfkit.records.facts import Words
from perfkit.records.per_run.ledger import LedgerRow
from perfkit.records.report import BESIDES_STEPS
from perfkit.records.run import RunReport
from perfkit.records.scaling import MultiRunSummary
from perfkit.subjects.table import SUBJECTS, asked_subjects
from perfkit.tables.words import in_words

MAX_INSIGHTS: Final = 5


class Ranked(NamedTuple):
    """A loss that a rule found in a run or a series."""

    subject: str
    """The subject whose rule it is."""
    rule: str
    run: str
    """Name of the run or the series."""
    loss: Loss
    saving_ns: float | None = None
    """What its remedy saves per step; None if unknown."""
    row: LedgerRow | None = None
    """The row of the ledger that it is on; None if it is on none."""
    predicted_for: str | None = None
    """The change that the saving was predicted for."""
    words: Words | None = None
    """Of a subject that a package adds."""
    part: str = ""
    """Which of its rule's losses it is, if the rule returns several: by what would remove it."""

    @property
    def what(self) -> tuple[str, str, str]:
        """What is the same in several runs."""
        return self.subject, self.rule, self.part


class Losses(NamedTuple):
    """The ranked losses of some runs, and subjects of packages that failed."""

    ranked: list[Ranked]
    failed: list[Observation]


def find_losses(runs: Sequence[RunReport], multi_run: MultiRunSummary | None) -> Losses:
    """Return the losses of `runs`, the largest first; what a rule finds in several runs only once.

    A subject of a package that fails on any run costs one finding, and none of its losses are kept.
    """
    evaluator = _Evaluator()
    best: dict[tuple[str, str, str], Ranked] = {}
    for one in (*_of_runs(runs, multi_run, evaluator), *(_of_multi_run(multi_run) if multi_run else ())):
        other = best.get(one.what)
        if other is None or _weight(one) > _weight(other):
            best[one.what] = one
    kept = [one for one in best.values() if one.subject not in evaluator.failed]
    return Losses(sorted(kept, key=_weight, reverse=True)[:MAX_INSIGHTS], list(evaluator.failed.values()))


class _Evaluator:
    """Evaluates the rules of subjects on runs and remembers the subjects of packages that failed."""

    def __init__(self) -> None:
        self._subjects = [(name, subject) for name, subject in asked_subjects(None) if subject.losses is not None]
        self.failed: dict[str, Observation] = {}

    def losses(self, context: LossContext) -> Iterator[Ranked]:
        """Yield the losses of a run, in the order of the subjects."""
        for name, subject in self._subjects:
            reported: list[str] = []
            for one in self._of_subject(name, subject, context):
                if one.loss.blames and context.run.on_busy_machine:
                    continue
                if booked := _booked(one, context):
                    yield booked
                if one.loss.explains_all and not stragglers_of(context.run):
                    return
                reported.append(one.loss.cause)
            context = context._replace(reported=(*context.reported, *reported))

    def _of_subject(self, name: str, subject: Subject, context: LossContext) -> Iterable[Ranked]:
        if name in SUBJECTS.builtin:
            return _evaluate(name, subject, context)
        if name in self.failed:
            return ()
        try:
            with SUBJECTS.guarded(name, f"failed on {context.run.run}"):
                return [_checked(one) for one in _evaluate(name, subject, context)]
        except PluginError as error:
            self.failed[name] = Observation("subject_failed", {"error": str(error)})
            return ()


def _evaluate(name: str, subject: Subject, context: LossContext) -> Iterator[Ranked]:
    rules: Rules = resolve(subject.losses) if subject.losses else {}
    for rule, find in rules.items():
        found: Any = find(context)
        for loss in found if isinstance(found, list | tuple) else [found]:
            if loss is not None:
                part = "" if loss is found else str(loss.remedy)
                yield Ranked(name, rule, context.run.run, loss, words=subject.words or None, part=part)


def _checked(one: Ranked) -> Ranked:
    """Return a loss of a package with its types checked, because the report that it goes into is a file format.

    Raises:
        ValidationError: a field has another type.
        ValueError: a figure is not finite, and JSON cannot hold it.
        KeyError: a fact has no words, or lacks a value that they need.
    """
    if not isinstance(one.loss, Loss):
        raise TypeError(f"{one.rule} returned a {type(one.loss).__name__}, not a Loss")
    loss = convert(asdict(one.loss), Loss)
    for facts in (loss.facts, loss.remedy):
        in_words(facts, one.words or {})
    figures = [*loss.evidence.values(), loss.per_step_ns or 0.0]
    if not all(map(math.isfinite, figures)):
        raise ValueError(f"{one.rule} returned figures that are not finite: {figures}")
    return one._replace(loss=loss)


def _weight(one: Ranked) -> tuple[float, float]:
    """Return what a loss is ranked by: the row that it is on, or without one the saving; then the saving.

    One that casts doubt on the others comes first.
    """
    doubtful = one.row is None and one.saving_ns is None
    saving_ns = one.saving_ns or 0.0
    return float("inf") if doubtful else float(one.row.ns) if one.row else saving_ns, saving_ns


def _of_runs(runs: Sequence[RunReport], multi_run: MultiRunSummary | None, evaluator: _Evaluator) -> Iterator[Ranked]:
    """Yield the losses that most repeats of a configuration show, of the repeat with the median saving.

    The repeat with the largest saving would be an outlier.
    """
    for group in _repeats(runs):
        by_rule: dict[tuple[str, str, str], list[Ranked]] = defaultdict(list)
        contexts = [context for run in group if (context := loss_context(run, multi_run))]
        for context in contexts:
            for one in evaluator.losses(context):
                by_rule[one.what].append(one)
        for several in by_rule.values():
            if 2 * len(several) > len(contexts):
                yield sorted(several, key=_weight)[(len(several) - 1) // 2]


def _repeats(runs: Sequence[RunReport]) -> Sequence[Sequence[RunReport]]:
    if len(runs) < 2:
        return [runs]
    from perfkit.subjects.scaling.series import repeats

    return repeats(runs)


def _of_multi_run(multi_run: MultiRunSummary) -> Iterator[Ranked]:
    from perfkit.subjects.scaling.losses import option_losses, series_losses

    for rule, name, loss in (*series_losses(multi_run.series), *option_losses(multi_run.option_comparisons)):
        # A slow source is a loss of the input, of which only the largest is reported.
        yield Ranked("input" if rule == "input" else "scaling", rule, name, loss, loss.per_step_ns)


def _booked(one: Ranked, context: LossContext) -> Ranked | None:
    """Return the loss with its row of the ledger and its saving; None if its row is small: then it delays nothing.

    The saving is that of the replay, where the steps were replayed with its change; unknown where there is no graph to
    replay; else the bound. None is more than the row, or the step.
    """
    loss = one.loss
    if loss.row is None:
        most_ns = float("inf") if one.rule == BESIDES_STEPS else float(context.ledger.step_ns)
        return one._replace(saving_ns=None if loss.per_step_ns is None else min(loss.per_step_ns, most_ns))
    row = loss.row if isinstance(loss.row, LedgerRow) else context.ledger.of(loss.row)
    if row is None or row.share < MIN_SHARE:
        return None
    real = min(1.0, context.ledger.step_ns / context.step_ns)
    bound_ns = (loss.per_step_ns or 0.0) * real
    saving_ns = bound_ns if loss.change is None else context.predicted_saving(loss.change)
    if saving_ns is None:
        return one._replace(row=row)
    if saving_ns < REPORTED_SHARE * context.ledger.step_ns:
        return None
    # More than rounding: a change may also remove some of another row.
    is_whole = loss.change is not None and saving_ns <= row.ns + len(context.ledger.rows)
    return one._replace(row=row, saving_ns=min(saving_ns, row.ns), predicted_for=loss.change if is_whole else None)
