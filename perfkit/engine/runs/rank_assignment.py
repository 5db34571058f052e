"""Assign a rank to each trace of a run: from its header, else its file name, else the user.

If headers give one rank to traces with different ranks in their names, the headers are wrong: the program did not know
its rank, or the traces come from several single-process runs. Then every header's rank in the run is ignored.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfkit.records.common import Observation
from perfkit.storage.filenames import rank_in_name


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
) -> tuple[list[int | None], list[Observation]]:
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


def _by_name(shared: Sequence[RankClaim], differing: Sequence[RankClaim]) -> Observation:
    rank = min(claim.in_header for claim in shared if claim.in_header is not None)
    files = [claim.file for claim in shared if claim.in_header == rank]
    return Observation("header_ranks_ignored", {"rank": rank, "files": files, "ignored": _in_headers(differing)})


def _by_header(differing: Sequence[RankClaim]) -> list[Observation]:
    return [Observation("rank_name_mismatch", {"claims": _in_headers(differing)})] if differing else []


def _in_headers(claims: Sequence[RankClaim]) -> list[tuple[str, int | None]]:
    return [(claim.file, claim.in_header) for claim in claims]
