"""Messages about runs as a whole: their manifests, sweeps and captures, and predictions of their graph."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perfkit.base.formatting import duration, listed, ranges, shell_word
from perfkit.base.step_numbers import numbered
from perfkit.records.facts import Words

_MOST_LISTED: Final = 4
_MOST_FILES: Final = 5
_MOST_MEASURED: Final = 3


def _missing_traces(files: Sequence[str]) -> str:
    first = f"{files[0]}, …" if len(files) > 1 else files[0]
    return f"{len(files)} of the traces that the run wrote are missing or unreadable: {first}"


def _run_failed(rank: int | None, failure: str | None, step: int | None, at: str | None) -> str:
    what = "cause unknown" if failure is None else f"rank {rank}: {failure}"
    when = "" if step is None else f" in step {step:,}"
    when += "" if at is None else f", {_utc(at)}"
    return f"the run failed{when} ({what}); its traces may be incomplete"


def _run_hung(step: int, at: str, idle_ns: int, ranks: Sequence[int], headline: str) -> str:
    who = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
    what = f"{who} held up step {step:,}" if ranks else f"step {step:,} was held up"
    return f"{what} for more than {duration(idle_ns)}, {_utc(at)}: {headline}"


def _utc(at: str) -> str:
    """Return a time of a manifest, ISO 8601 in UTC, as people write it."""
    return f"{at.removesuffix('+00:00').replace('T', ' ')} UTC"


def _compiling(recorded: Sequence[int]) -> str:
    return (
        f"torch compiled during recorded steps ({ranges(recorded)}): their times include compilation; "
        f"start recording later, with skip_first={recorded[-1] + 1}"
    )


def _compiled(steps: Sequence[int], longest_ns: int, step: int, rank: int | None) -> str:
    where = f"step {numbered(step)}" if rank is None else f"step {numbered(step)} on rank {rank}"
    again = "; TORCH_LOGS=recompiles tells what torch compiles again" if len(steps) > 1 else ""
    return (
        f"code was compiled or loaded during {len(steps)} recorded step{'s' if len(steps) > 1 else ''} "
        f"({ranges(steps)}), for up to {duration(longest_ns)} (in {where}): their times include that{again}"
    )


def _injected_delay(delay_ns: int, phase: str, rank: int | None) -> str:
    who = "every rank" if rank is None else f"rank {rank}"
    return f"a delay of {duration(delay_ns)} was injected into {phase} of {who} (--inject)"


def _replicas_differ(ranks: Sequence[int], count: int) -> str:
    who = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
    return (
        f"the parameters of {who} differ from rank 0's, although the gradients of all {count:,} are reduced: "
        "broadcast rank 0's before the first step"
    )


def _several_jobs(folder: str, labels: Sequence[str]) -> str:
    return (
        f"{folder} has the traces of {len(labels)} jobs ({listed(labels, _MOST_LISTED)}): each is analysed as a run; "
        "put each job into a separate folder"
    )


def _not_a_regular_file(names: Sequence[str]) -> str:
    what = "is not a regular file and was" if len(names) == 1 else "are not regular files and were"
    return f"{listed(names, _MOST_FILES)} {what} skipped: a pipe or link is read only if its own path is given"


def _has_captures(folder: Path, names: Sequence[str]) -> str:
    command = f"perfkit analyze {shell_word(folder / names[0])}"
    return f"steps recorded while it ran are not included: {listed(names, _MOST_LISTED)} ({command})"


def _none_measured(ranks: int, wanted: Sequence[tuple[str, int]]) -> str:
    named = listed([f"{operator} among {size} ranks" for operator, size in wanted], _MOST_MEASURED)
    return (
        f"the measured collectives ({ranks} ranks) contain none of the run's ({named}) at their sizes and of their "
        "types"
    )


def _ranks_not_replayed(missing: int, of: int, unaligned: int) -> str:
    why = f", {unaligned} of them because their clocks cannot be aligned" if unaligned else ""
    return f"{missing} of {of} ranks are not replayed{why}: what others waited for them stays as it was"


def _steps_not_replayed(recorded: int, steps: Sequence[int | None]) -> str:
    shown = ranges(step for step in steps if step is not None)
    return f"of {recorded} steps, {len(steps)} {'is' if len(steps) == 1 else 'are'} replayed ({shown})"


def _waits_unknown(rank: int | None, per_step_ns: float) -> str:
    return (
        f"what {'the rank' if rank is None else f'rank {rank}'} waits for is not known for {duration(per_step_ns)} per "
        "step of its exposed communication: predictions may be off by about that; a late rank may cost more, and a "
        "rank whose own work (idle, input, operators) is shortened may only wait longer"
    )


RUNS: Final[Words] = {
    "no_traces": "this run has no readable trace",
    "no_traces/not_profiled": (
        "this run was timed without the profiler (--no-profile), so it has no breakdown; record it without that option "
        "to get one"
    ),
    "unreadable_manifest": "{error}",
    "missing_traces": _missing_traces,
    "run_failed": _run_failed,
    "run_hung": _run_hung,
    "hangs_unread": "{error}",
    "run_unfinished": (
        "the run has not finished, was killed, or left by os._exit; only completed profiling cycles are included"
    ),
    "has_captures": _has_captures,
    "captured_after_condition": ("recorded because {reason} (--capture-when '{condition}'); the trace begins later"),
    "incomplete_capture": "this capture is incomplete: rank {rank}: {problem}",
    "not_compiled": "--compile compiled no graph: the model ran in eager mode",
    "compilation_recorded": _compiled,
    "compilation_recorded/manifest": _compiling,
    "oversubscribed": (
        "the {ranks} ranks on {host} use {threads} threads on {cores} cores: waiting OpenMP threads spin, which can "
        "make steps many times longer; use --threads or OMP_NUM_THREADS"
    ),
    "same_batches": (
        "all {ranks} ranks train on equal batches ({steps} steps compared by a hash): give each its part "
        "(DistributedSampler), or a seed of its own"
    ),
    "replicas_differ": _replicas_differ,
    "injected_delay": _injected_delay,
    "several_jobs": _several_jobs,
    "not_a_regular_file": _not_a_regular_file,
    "unreadable_sweep": "{error}",
    "point_failed": "{sweep}: {run} is missing because its run failed: {reason}",
    "sweep_points_pending": (
        "{sweep}: {pending} of {points} points have not run yet; repeat the same `perfkit sweep` command to run them"
    ),
    "other_network_measured": (
        "the run's {what} is {own:list}, that of the measured collectives {measured:list}: the shares of measured "
        "bandwidth compare different things"
    ),
    "not_measured": _none_measured,
    "not_measured/unknown": (
        "no collective of the run has a known size and transfer time to compare with the measured ones"
    ),
    "not_measured/ranks_missing": (
        "ranks without a trace take part in the run's collectives, or may: how long transfers take is not known, and "
        "nothing is compared with the measured ones"
    ),
    "cross_check_failed": "{error}",
    "ranks_not_replayed": _ranks_not_replayed,
    "steps_not_replayed": _steps_not_replayed,
    "dependencies_contradicted": (
        "{violated:,} dependencies contradict the times in the traces and are left out: predictions may be off"
    ),
    "waits_unknown": _waits_unknown,
}
