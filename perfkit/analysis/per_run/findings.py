"""What a reader must know of a whole run before trusting its numbers (metrics.md section 9)."""

from collections.abc import Iterable, Iterator, Mapping

from perfkit.analysis.per_run.manifest_checks import compile_findings, oversubscription
from perfkit.schema.common import Finding
from perfkit.schema.manifest import RunManifest
from perfkit.schema.rank import RankReport
from perfkit.util.formatting import duration, ranges


def run_findings(
    ranks: list[RankReport],
    communicated: Mapping[str, bool],
    said: list[int],
    world_size: int,
    manifest: RunManifest | None,
) -> Iterator[Finding]:
    """Yield what no single trace can say.

    Args:
        ranks: the reports of the ranks.
        communicated: by trace, whether it shows any communication.
        said: the world sizes that the manifest or the headers speak of; none where they do not.
        world_size: the one that is taken.
        manifest: what the run says of itself; None for foreign traces.
    """
    yield from _missing_ranks(ranks, world_size, manifest)
    yield from _no_collectives(communicated, max(said, default=0))
    yield from _contradictions(ranks, said)
    yield from _uneven(ranks)
    if manifest:
        yield from _manifest_findings(manifest, set(communicated))


def _missing_ranks(ranks: list[RankReport], world_size: int, manifest: RunManifest | None) -> list[Finding]:
    if not ranks and manifest and manifest.config.get("profile") is False:
        message = "this run was only timed (--no-profile): there is no breakdown"
        return [Finding(code="no_traces", severity="info", message=message)]
    if not ranks:
        return [Finding(code="no_traces", severity="warning", message="this run has no trace that could be read")]
    missing = world_size - len(ranks)
    if missing <= 0:
        return []
    seen = {rank.rank for rank in ranks}
    # Not all of them: the world size is a number in an untrusted file.
    absent = ranges(rank for rank in range(min(world_size, 100_000)) if rank not in seen)
    which = absent if len(absent) <= 60 else absent[:60].rsplit(",", 1)[0] + ", …"
    have = "has" if missing == 1 else "have"
    message = f"{missing} of {world_size} ranks {have} no trace here ({which}): what they did is not known"
    if None in seen:
        message = f"{missing} of {world_size} ranks {have} no trace here: what they did is not known"
    return [Finding(code="ranks_missing", severity="warning", message=message)]


def _no_collectives(communicated: Mapping[str, bool], world_size: int) -> list[Finding]:
    silent = [file for file, seen in communicated.items() if not seen]
    if world_size < 2 or not silent:
        return []
    message = (
        f"{len(silent)} of {len(communicated)} traces hold no collective though the world has {world_size} ranks: "
        "no process group was initialised (each rank trained alone), they were not recorded, or their kernels are "
        "called something that perfkit does not know"
    )
    return [Finding(code="no_collectives", severity="warning", message=message, file=silent[0])]


def _contradictions(ranks: list[RankReport], said: list[int]) -> Iterable[Finding]:
    if len(said) > 1:
        message = f"the traces speak of worlds of {', '.join(map(str, said))} ranks: are they of one job?"
        yield Finding(code="world_sizes_differ", severity="warning", message=message)
    beyond = [rank.rank for rank in ranks if said and rank.rank is not None and rank.rank >= max(said)]
    if beyond:
        message = f"a trace of rank {beyond[0]} in a world of {max(said)} ranks: are these of one job?"
        yield Finding(code="rank_out_of_range", severity="warning", message=message, rank=beyond[0])
    if len({rank.device for rank in ranks}) > 1:
        message = "some ranks have device activity and some have none: their figures cannot be compared"
        yield Finding(code="mixed_devices", severity="warning", message=message)


def _uneven(ranks: list[RankReport]) -> list[Finding]:
    counts = {rank.rank: len({step.step for step in rank.steps}) for rank in ranks if rank.rank is not None}
    if len(set(counts.values())) < 2:
        return []
    few = min(counts, key=lambda rank: counts[rank])
    message = (
        f"the ranks recorded different numbers of steps (rank {few}: {counts[few]}, others up to "
        f"{max(counts.values())}): sums over ranks mix them"
    )
    return [Finding(code="uneven_steps", severity="warning", message=message, rank=few)]


def _manifest_findings(manifest: RunManifest, present: set[str]) -> Iterable[Finding]:
    absent = [file for file in manifest.files if file.kind == "trace" and file.path not in present]
    if absent:
        first = f"{absent[0].path}, …" if len(absent) > 1 else absent[0].path
        message = f"of the traces that the run wrote {len(absent)} cannot be read or found: {first}"
        yield Finding(code="missing_traces", severity="warning", message=message, rank=absent[0].rank)
    if manifest.state == "failed":
        what = (
            f"rank {manifest.failure.rank}: {manifest.failure.message}"
            if manifest.failure
            else "the cause is not known"
        )
        yield Finding(
            code="run_failed", severity="error", message=f"the run failed ({what}); only what it wrote is here"
        )
    if manifest.state == "running":
        message = "the run has not finished, or was killed: only the cycles that it wrote are here"
        yield Finding(code="run_unfinished", severity="warning", message=message)
    yield from oversubscription(manifest.ranks)
    yield from compile_findings(manifest.compiled, manifest.step_kinds)
    for fault in manifest.injections:
        who = "every rank" if fault.rank is None else f"rank {fault.rank}"
        message = f"a delay of {duration(fault.delay_ns)} was put into {fault.phase} of {who} on purpose (--inject)"
        yield Finding(code="injected_delay", severity="info", message=message, rank=fault.rank)
