"""Data-quality findings of a whole run (metrics.md section 9)."""

from collections.abc import Iterable, Iterator, Mapping

from perfkit.engine.runs.manifest_checks import compile_findings, compiled_steps, oversubscription
from perfkit.engine.runs.replicas import replica_findings
from perfkit.records.common import Observation
from perfkit.records.manifest import CaptureRecord, RunManifest
from perfkit.records.rank import RankReport


def run_findings(
    ranks: list[RankReport],
    communicated: Mapping[str, bool],
    world_sizes: list[int],
    world_size: int,
    manifest: RunManifest | None,
) -> Iterator[Observation]:
    """Yield the findings that no single trace can show.

    Args:
        communicated: by trace, whether it contains any communication.
        world_sizes: distinct world sizes in the manifest or the headers; empty if they contain none.
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
        yield from replica_findings(ranks, manifest.ranks, world_size)


def _missing_ranks(ranks: list[RankReport], world_size: int, manifest: RunManifest | None) -> list[Observation]:
    if not ranks and manifest and manifest.config.get("profile") is False:
        return [Observation("no_traces", case="not_profiled", severity="info")]
    if not ranks:
        return [Observation("no_traces")]
    found = {rank.rank for rank in ranks}
    asked = manifest.capture.asked if manifest is not None and manifest.capture is not None else None
    wanted = {rank for rank in asked or () if 0 <= rank < world_size}
    if not wanted or None in found:
        # Capped because the world size is a number in an untrusted file.
        absent = [] if None in found else [rank for rank in range(min(world_size, 100_000)) if rank not in found]
        return _without_trace(world_size - len(ranks), world_size, absent, chosen=False)
    lost, chosen = sorted(wanted - found), {"chosen": sorted(wanted), "world_size": world_size}
    left_out = [Observation("ranks_missing", chosen, "not_chosen", "info")] if len(wanted) < world_size else []
    return left_out + _without_trace(len(lost), len(wanted), lost, chosen=True)


def _without_trace(missing: int, of: int, absent: list[int], *, chosen: bool) -> list[Observation]:
    values = {"missing": missing, "of": of, "absent": absent, "chosen": chosen}
    return [Observation("ranks_missing", values)] if missing > 0 else []


def _unknown_world_size(ranks: list[RankReport], world_sizes: list[int], communicated: bool) -> Iterator[Observation]:
    backends = sorted({rank.backend for rank in ranks if rank.backend})
    if (backends or communicated) and not world_sizes:
        yield Observation("world_size_unknown", {"backends": backends})


def _no_collectives(communicated: Mapping[str, bool], world_size: int, *, has_group: bool) -> list[Observation]:
    silent = [file for file, seen in communicated.items() if not seen]
    if world_size < 2 or not silent:
        return []
    counts = {"silent": len(silent), "traces": len(communicated), "world_size": world_size, "has_group": has_group}
    return [Observation("no_collectives", counts, file=silent[0])]


def _contradictions(ranks: list[RankReport], world_sizes: list[int]) -> Iterable[Observation]:
    largest = max(world_sizes, default=None)
    beyond = [rank.rank for rank in ranks if largest is not None and rank.rank is not None and rank.rank >= largest]
    if beyond:
        yield Observation("rank_out_of_range", {"rank": beyond[0], "world_size": largest}, rank=beyond[0])
    if len({rank.device for rank in ranks}) > 1:
        yield Observation("mixed_devices")


def _uneven_steps(ranks: list[RankReport]) -> list[Observation]:
    counts = {rank.rank: len({step.step for step in rank.steps}) for rank in ranks if rank.rank is not None}
    if len(set(counts.values())) < 2:
        return []
    few = min(counts, key=lambda rank: counts[rank])
    return [Observation("uneven_steps", {"rank": few, "steps": counts[few], "most": max(counts.values())}, rank=few)]


def _capture_findings(capture: CaptureRecord) -> Iterable[Observation]:
    if capture.reason is not None:
        yield Observation("captured_after_condition", {"reason": capture.reason, "condition": capture.condition})
    for rank, problem in capture.problems.items():
        yield Observation("incomplete_capture", {"rank": rank, "problem": problem}, rank=rank)


def _failure(manifest: RunManifest) -> Observation:
    failed = manifest.failure
    steps = {record.rank: len(record.step_wall_ns) for record in manifest.ranks}
    values = {
        "rank": failed and failed.rank,
        "failure": failed and failed.message,
        "step": steps.get(failed.rank) if failed else None,
        "at": manifest.finished_at,
    }
    return Observation("run_failed", values)


def _manifest_findings(manifest: RunManifest, present: set[str]) -> Iterable[Observation]:
    absent = [file for file in manifest.files if file.kind == "trace" and file.path not in present]
    if absent:
        yield Observation("missing_traces", {"files": [file.path for file in absent]}, rank=absent[0].rank)
    if manifest.state == "failed":
        yield _failure(manifest)
    if manifest.state == "running":
        yield Observation("run_unfinished")
    yield from oversubscription(manifest.ranks)
    yield from compile_findings(manifest.compiled, manifest.step_kinds)
    if manifest.capture is not None:
        yield from _capture_findings(manifest.capture)
    for fault in manifest.injections:
        values = {"delay_ns": fault.delay_ns, "phase": fault.phase, "rank": fault.rank}
        yield Observation("injected_delay", values, rank=fault.rank)
