"""Assign a rank to each trace of a run: from its header, else its file name, else the user.

If headers give one rank to traces with different ranks in their names, the headers are wrong: the program did not know
its rank, or the traces come from several single-process runs. Then every header's rank in the run is ignored.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from perfkit.schema.common import Finding
from perfkit.storage.filenames import rank_in_name

_MOST_LISTED: Final = 3


class RankClaim(NamedTuple):
    """The rank of a trace, by its header and by its file name."""

    file: str
    in_header: int | None
    in_name: int | None

    @property
    def is_contradictory(self) -> bool:
        """Whether header and name give different ranks."""
        return None not in (self.in_header, self.in_name) and self.in_header != self.in_name


def assign_ranks(
    headers: Iterable[tuple[str, int | None]], default: int | None
) -> tuple[list[int | None], list[Finding]]:
    """Return the rank of each trace, None if unknown, and findings about contradictions.

    Args:
        headers: file name of each trace, and the rank in its header.
        default: rank of traces without one.
    """
    claims = [RankClaim(file, rank, rank_in_name(file)) for file, rank in headers]
    shared = _shared(claims)
    differing = [claim for claim in claims if claim.is_contradictory]
    if shared:
        return [_first(claim.in_name, default) for claim in claims], [_by_name(shared, differing)]
    return [_first(claim.in_header, claim.in_name, default) for claim in claims], _by_header(differing)


def _first(*ranks: int | None) -> int | None:
    return next((rank for rank in ranks if rank is not None), None)


def _shared(claims: Sequence[RankClaim]) -> list[RankClaim]:
    """Return the traces whose headers give the same rank as others', although all their names give different ones."""
    by_header: dict[int, list[RankClaim]] = defaultdict(list)
    for claim in claims:
        if claim.in_header is not None:
            by_header[claim.in_header].append(claim)
    return [claim for claims in by_header.values() if _have_distinct_names(claims) for claim in claims]


def _have_distinct_names(claims: Sequence[RankClaim]) -> bool:
    """Return whether the names of traces give several ranks; the names of one rank's cycles give the same."""
    names = {claim.in_name for claim in claims}
    return len(names) > 1 and None not in names


def _by_name(shared: Sequence[RankClaim], differing: Sequence[RankClaim]) -> Finding:
    rank = min(claim.in_header for claim in shared if claim.in_header is not None)
    files = _listed([claim.file for claim in shared if claim.in_header == rank])
    ignored = _listed([f"{claim.file}: rank {claim.in_header}" for claim in differing])
    message = (
        f"several traces have rank {rank} in their headers but different ranks in their file names ({files}): "
        f"file names count in this run and headers are ignored ({ignored}); "
        "put independent single-process runs into separate folders"
    )
    return Finding(code="header_ranks_ignored", severity="warning", message=message)


def _by_header(differing: Sequence[RankClaim]) -> list[Finding]:
    if not differing:
        return []
    listed = _listed([f"{claim.file} has rank {claim.in_header} in its header" for claim in differing])
    message = f"header and file name give different ranks; the header counts: {listed}"
    return [Finding(code="rank_name_mismatch", severity="warning", message=message)]


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:_MOST_LISTED]) + (", …" if len(parts) > _MOST_LISTED else "")
