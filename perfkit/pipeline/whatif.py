"""Predict changes of a run: read its traces, build the graph of its steps, and replay it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from perfkit._version import __version__
from perfkit.engine.kinds.kernel_rules import add_rule_uses, unused_rules
from perfkit.engine.run_context import RunContext
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.change import ChangeError
from perfkit.engine.whatif.changes import candidates, parse_changes
from perfkit.engine.whatif.predict import Replayed, make_changes, replay_unchanged
from perfkit.engine.whatif.unexplained import find_unexplained
from perfkit.errors import TraceError, UsageError
from perfkit.pipeline.load_run import load_run
from perfkit.pipeline.run_report import build_run
from perfkit.pipeline.scheduler import Progress
from perfkit.pipeline.summarize import Options
from perfkit.records.common import Finding, Observation
from perfkit.records.per_run.whatif import Prediction, WhatIf
from perfkit.records.run import RunReport
from perfkit.report.wording.findings import word, word_all
from perfkit.report.wording.whatif import word_applied, word_refusal
from perfkit.storage.kernel_rules_file import KernelRules, load_kernel_rules

MOST_RANKED: Final = 10
_VIOLATED: Final = 0.01
"""Share of dependencies contradicted by the measured times from which it is reported."""
_MUCH_UNEXPLAINED: Final = 0.05
"""Share of a rank's step from which exposed communication is reported that the graph does not explain."""


def predict(
    path: str | Path,
    changes: Sequence[str] = (),
    *,
    step_marker: str | None = None,
    data_marker: str | None = None,
    kernel_rules: KernelRules = None,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> WhatIf:
    """Predict how long a step would take after some changes.

    Args:
        path: a run folder, a folder of the traces of one run, or a trace.
        changes: such as `rank3=healthy`, all made at once; without any, single changes are ranked by what they save.
        step_marker: as in `analyze`, as are the following.

    Raises:
        UsageError: a change cannot be read, applies to nothing in the run, or cannot be predicted from its traces; or
            the path has several runs.
        TraceError: there is no trace, none can be read, or they have no common steps.
        StoreError: the manifest cannot be read.
    """
    try:
        parse_changes(changes)
    except ChangeError as error:
        raise UsageError(word_refusal(error)) from None
    options = Options(
        step_marker=step_marker,
        data_marker=data_marker,
        max_bytes=max_bytes,
        kernel_rules=load_kernel_rules(kernel_rules),
    )
    report, graphs, unused = _load(path, options, progress)
    before = replay_unchanged(graphs)
    step_ns = report.step_time.mean_ns if report.step_time else before.mean_ns
    before = before._replace(beside_ns=step_ns - float(np.mean(before.measured_ns)))
    return WhatIf(
        perfkit_version=__version__,
        run=report.run,
        path=str(path),
        ranks=[rank.rank for rank in report.ranks if rank.rank in graphs[0].ranks],
        world_size=report.world_size,
        steps=[step for graph in graphs for step in graph.steps],
        measured_step_ns=step_ns,
        replayed_step_ns=before.mean_ns,
        prediction=predict_changes(graphs, report, before, changes) if changes else None,
        ranking=None if changes else predict_each(graphs, report, before),
        findings=[*_findings(graphs, report), *word_all(unused)],
    )


def predict_changes(graphs: Sequence[StepGraph], run: RunReport, before: Replayed, texts: Sequence[str]) -> Prediction:
    """Return the prediction of some changes, all made at once.

    Args:
        graphs: of some steps of a run, at least one.
        before: result of `replay_unchanged`.
        texts: the changes, as the user writes them.

    Raises:
        UsageError: a change cannot be read, applies to nothing, or cannot be predicted from these traces.
    """
    try:
        changed = make_changes(graphs, run, texts)
    except ChangeError as error:
        raise UsageError(word_refusal(error)) from None
    return changed.prediction(before, list(map(word_applied, texts, changed.effects)))


def predict_each(graphs: Sequence[StepGraph], run: RunReport, before: Replayed) -> list[Prediction]:
    """Return the predictions of single changes that these traces can predict, the largest saving first.

    Those that save less than a thousandth of the step are left out.
    """
    found = []
    for text in candidates(graphs[0], run):
        try:
            found.append(predict_changes(graphs, run, before, [text]))
        except UsageError:  # a candidate that does not apply to this run
            continue
    worth = (one for one in found if one.saving_ns > before.mean_ns / 1000)
    return sorted(worth, key=lambda one: -one.saving_ns)[:MOST_RANKED]


def _load(
    path: str | Path, options: Options, progress: Progress | None
) -> tuple[RunReport, Sequence[StepGraph], list[Observation]]:
    """Return the report of a run, the graphs of its steps, and a finding about rules for kernels without effect.

    Raises:
        TraceError: there is no graph.
        UsageError: the traces are of several jobs.
    """
    loaded = load_run(path, options, True, progress)
    location = loaded.location
    context = RunContext(loaded.summaries, loaded.manifest, step_marker=options.step_marker)
    built = build_run(location.name, str(location.path), context, loaded.lost)
    report = built.report
    if not built.graphs:
        reasons = [finding.message for finding in report.findings if finding.code == "critical_path_unknown"]
        raise TraceError(f"{path}: the steps cannot be replayed" + "".join(f": {reason}" for reason in reasons))
    return report, built.graphs, unused_rules(add_rule_uses(one.summary.rule_uses for one in loaded.summaries))


def _findings(graphs: Sequence[StepGraph], run: RunReport) -> Iterator[Finding]:
    graph, steps = graphs[0], [step for one in graphs for step in one.steps]
    missing = run.world_size - len(graph.ranks)
    if missing > 0:
        unaligned = len(run.critical_path.unaligned_ranks) if run.critical_path else 0
        yield word(
            Observation("ranks_not_replayed", {"missing": missing, "of": run.world_size, "unaligned": unaligned})
        )
    yield from (finding for finding in run.findings if finding.code in ("suspect_matches", "damaged_trace"))
    recorded = {step.step for rank in run.ranks for step in rank.steps}
    if len(recorded) > len(steps):
        yield word(Observation("steps_not_replayed", {"recorded": len(recorded), "steps": steps}))
    violated = sum(graph.violated.values())
    if violated > _VIOLATED * len(graph.edges.source):
        yield word(Observation("dependencies_contradicted", {"violated": violated}))
    unexplained = find_unexplained(graph, run.ranks, run.world_size)
    if unexplained and unexplained.of_step >= _MUCH_UNEXPLAINED:
        yield word(Observation("waits_unknown", {"rank": unexplained.rank, "per_step_ns": unexplained.per_step_ns}))
