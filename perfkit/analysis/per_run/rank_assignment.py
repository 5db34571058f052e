"""Which rank wrote each trace of a run: its header says it, else the name of its file, else the user.

A header that names one rank in traces whose names tell several does not know: the program was not told its rank, or the
traces are of several runs of a single process. There the names count.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from perfkit.schema.common import Finding
from perfkit.storage.filenames import rank_in_name

_MOST_LISTED: Final = 3


class RankClaim(NamedTuple):
    """What a trace says of its rank."""

    file: str
    in_header: int | None
    in_name: int | None

    @property
    def is_contradictory(self) -> bool:
        """Whether header and name say different ranks."""
        return None not in (self.in_header, self.in_name) and self.in_header != self.in_name


def assign_ranks(
    headers: Iterable[tuple[str, int | None]], default: int | None
) -> tuple[list[int | None], list[Finding]]:
    """Return the rank of each trace, None where it is not known, and what was wrong with what they say.

    Args:
        headers: the name of each trace's file, and the rank that its header says.
        default: the rank of traces that do not say theirs.
    """
    claims = [RankClaim(file, rank, rank_in_name(file)) for file, rank in headers]
    shared = _shared(claims)
    differing = [claim for claim in claims if claim.is_contradictory]
    if shared:  # then no header of the run is believed
        return [_first(claim.in_name, default) for claim in claims], [_by_name(shared, differing)]
    return [_first(claim.in_header, claim.in_name, default) for claim in claims], _by_header(differing)


def _first(*ranks: int | None) -> int | None:
    return next((rank for rank in ranks if rank is not None), None)


def _shared(claims: Sequence[RankClaim]) -> list[RankClaim]:
    """Return the traces that claim a rank by their headers that others claim too, whose names all tell them apart."""
    by_header: dict[int, list[RankClaim]] = defaultdict(list)
    for claim in claims:
        if claim.in_header is not None:
            by_header[claim.in_header].append(claim)
    return [claim for claims in by_header.values() if _have_distinct_names(claims) for claim in claims]


def _have_distinct_names(claims: Sequence[RankClaim]) -> bool:
    """Say whether the names of traces tell different ranks; those of a rank's cycles tell the same."""
    names = {claim.in_name for claim in claims}
    return len(names) > 1 and None not in names


def _by_name(shared: Sequence[RankClaim], differing: Sequence[RankClaim]) -> Finding:
    several = min(claim.in_header for claim in shared if claim.in_header is not None)
    first = [claim.file for claim in shared if claim.in_header == several]
    others = _listed([f"{claim.file} is of rank {claim.in_header}" for claim in differing])
    message = (
        f"several traces say rank {several} in their headers and different ranks in their names ({_listed(first)}): "
        f"in this run the names count, and no header ({others}); "
        "runs that are of one process each are to have a folder each"
    )
    return Finding(code="header_ranks_ignored", severity="warning", message=message)


def _by_header(differing: Sequence[RankClaim]) -> list[Finding]:
    if not differing:
        return []
    listed = _listed([f"{claim.file} is of rank {claim.in_header}" for claim in differing])
    message = f"the names of {len(differing)} traces say other ranks than their headers, which count: {listed}"
    if len(differing) == 1:
        message = f"the name of a trace says another rank than its header, which counts: {listed}"
    return [Finding(code="rank_name_mismatch", severity="warning", message=message)]


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:_MOST_LISTED]) + (", …" if len(parts) > _MOST_LISTED else "")
