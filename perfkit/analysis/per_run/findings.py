"""Data-quality findings of a whole run (metrics.md section 9)."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from perfkit.analysis.per_run.manifest_checks import compile_findings, compiled_steps, oversubscription
from perfkit.schema.common import Finding
from perfkit.schema.manifest import CaptureRecord, RunManifest
from perfkit.schema.rank import RankReport
from perfkit.util.formatting import duration, ranges


def run_findings(
    ranks: list[RankReport],
    communicated: Mapping[str, bool],
    world_sizes: list[int],
    world_size: int,
    manifest: RunManifest | None,
) -> Iterator[Finding]:
    """Yield the findings that no single trace can show.

    Args:
        ranks: reports of the ranks.
        communicated: by trace, whether it contains any communication.
        world_sizes: distinct world sizes in the manifest or the headers; empty if they contain none.
        world_size: the one that is used.
        manifest: the run's manifest; None for foreign traces.
    """
    yield from _missing_ranks(ranks, world_size, manifest)
    yield from _unknown_world_size(ranks, world_sizes, any(communicated.values()))
    has_group = bool(manifest.backend if manifest else any(rank.backend for rank in ranks))
    yield from _no_collectives(communicated, max(world_sizes, default=0), has_group=has_group)
    yield from _contradictions(ranks, world_sizes)
    yield from _uneven_steps(ranks)
    if manifest is None or manifest.compiled is None:  # else the run itself has recorded when it compiled
        yield from compiled_steps(ranks)
    if manifest:
        yield from _manifest_findings(manifest, set(communicated))


def _missing_ranks(ranks: list[RankReport], world_size: int, manifest: RunManifest | None) -> list[Finding]:
    if not ranks and manifest and manifest.config.get("profile") is False:
        message = (
            "this run was timed without the profiler (--no-profile), so it has no breakdown; "
            "record it without that option to get one"
        )
        return [Finding(code="no_traces", severity="info", message=message)]
    if not ranks:
        return [Finding(code="no_traces", severity="warning", message="this run has no readable trace")]
    found = {rank.rank for rank in ranks}
    asked = manifest.capture.asked if manifest is not None and manifest.capture is not None else None
    wanted = {rank for rank in asked or () if 0 <= rank < world_size}
    if not wanted or None in found:
        # Capped because the world size is a number in an untrusted file.
        absent = [] if None in found else [rank for rank in range(min(world_size, 100_000)) if rank not in found]
        return _without_trace(world_size - len(ranks), f"{world_size} ranks", absent)
    lost = sorted(wanted - found)
    return _left_out(wanted, world_size) + _without_trace(len(lost), f"the {len(wanted)} that were to record", lost)


def _without_trace(missing: int, of: str, absent: Collection[int]) -> list[Finding]:
    if missing <= 0:
        return []
    listed = f" ({_ranks(absent)})" if absent else ""
    message = f"trace missing for {missing} of {of}{listed}; excluded"
    return [Finding(code="ranks_missing", severity="warning", message=message)]


def _left_out(wanted: Collection[int], world_size: int) -> list[Finding]:
    if len(wanted) == world_size:
        return []
    message = (
        f"only {_ranks(wanted)} of {world_size} {'was' if len(wanted) == 1 else 'were'} to record these steps "
        "(perfkit capture --ranks): what the others did in them is not known"
    )
    return [Finding(code="ranks_missing", severity="info", message=message)]


def _ranks(numbers: Collection[int]) -> str:
    listed = ranges(numbers)
    shown = listed if len(listed) <= 60 else listed[:60].rsplit(",", 1)[0] + ", …"
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {shown}"


def _unknown_world_size(ranks: list[RankReport], world_sizes: list[int], communicated: bool) -> Iterator[Finding]:
    backends = sorted({rank.backend for rank in ranks if rank.backend})
    if (backends or communicated) and not world_sizes:
        have = f"name the backend {', '.join(backends)}" if backends else "contain communication"
        message = f"the traces {have} but no world size: ranks may be missing, and their number is unknown"
        yield Finding(code="world_size_unknown", severity="info", message=message)


def _no_collectives(communicated: Mapping[str, bool], world_size: int, *, has_group: bool) -> list[Finding]:
    silent = [file for file, seen in communicated.items() if not seen]
    if world_size < 2 or not silent:
        return []
    message = (
        f"{len(silent)} of {len(communicated)} traces contain no collective although the world size is {world_size}: "
        + ("no recorded step had one" if has_group else "no process group was initialised (each rank trained alone)")
        + ", collectives were not recorded, or perfkit does not recognise their kernel names"
    )
    return [Finding(code="no_collectives", severity="warning", message=message, file=silent[0])]


def _contradictions(ranks: list[RankReport], world_sizes: list[int]) -> Iterable[Finding]:
    largest = max(world_sizes, default=None)
    beyond = [rank.rank for rank in ranks if largest is not None and rank.rank is not None and rank.rank >= largest]
    if beyond:
        message = f"a trace is of rank {beyond[0]}, but the world size is {largest}: are the traces from one job?"
        yield Finding(code="rank_out_of_range", severity="warning", message=message, rank=beyond[0])
    if len({rank.device for rank in ranks}) > 1:
        message = "some ranks have device activity and others do not: their metrics are not comparable"
        yield Finding(code="mixed_devices", severity="warning", message=message)


def _uneven_steps(ranks: list[RankReport]) -> list[Finding]:
    counts = {rank.rank: len({step.step for step in rank.steps}) for rank in ranks if rank.rank is not None}
    if len(set(counts.values())) < 2:
        return []
    few = min(counts, key=lambda rank: counts[rank])
    message = (
        f"the ranks recorded different numbers of steps (rank {few}: {counts[few]}, others up to "
        f"{max(counts.values())}): sums over ranks are not comparable"
    )
    return [Finding(code="uneven_steps", severity="warning", message=message, rank=few)]


def _capture_findings(capture: CaptureRecord) -> Iterable[Finding]:
    if capture.reason is not None:
        message = f"recorded because {capture.reason} (--capture-when '{capture.condition}'); the trace begins later"
        yield Finding(code="captured_after_condition", severity="info", message=message)
    for rank, problem in capture.problems.items():
        message = f"this capture is incomplete: rank {rank}: {problem}"
        yield Finding(code="incomplete_capture", severity="warning", message=message, rank=rank)


def _manifest_findings(manifest: RunManifest, present: set[str]) -> Iterable[Finding]:
    absent = [file for file in manifest.files if file.kind == "trace" and file.path not in present]
    if absent:
        first = f"{absent[0].path}, …" if len(absent) > 1 else absent[0].path
        message = f"{len(absent)} of the traces that the run wrote are missing or unreadable: {first}"
        yield Finding(code="missing_traces", severity="warning", message=message, rank=absent[0].rank)
    if manifest.state == "failed":
        what = f"rank {manifest.failure.rank}: {manifest.failure.message}" if manifest.failure else "cause unknown"
        yield Finding(
            code="run_failed", severity="error", message=f"the run failed ({what}); its traces may be incomplete"
        )
    if manifest.state == "running":
        message = (
            "the run has not finished, was killed, or left by os._exit; only completed profiling cycles are included"
        )
        yield Finding(code="run_unfinished", severity="warning", message=message)
    yield from oversubscription(manifest.ranks)
    yield from compile_findings(manifest.compiled, manifest.step_kinds)
    if manifest.capture is not None:
        yield from _capture_findings(manifest.capture)
    for fault in manifest.injections:
        who = "every rank" if fault.rank is None else f"rank {fault.rank}"
        message = f"a delay of {duration(fault.delay_ns)} was injected into {fault.phase} of {who} (--inject)"
        yield Finding(code="injected_delay", severity="info", message=message, rank=fault.rank)
