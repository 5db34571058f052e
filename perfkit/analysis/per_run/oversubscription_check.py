"""Hosts whose ranks use more threads than there are cores: threads that spin while they wait slow each other down."""

from collections.abc import Iterator, Sequence

from perfkit.schema.common import Finding
from perfkit.schema.manifest import RankRecord


def oversubscription(ranks: Sequence[RankRecord]) -> Iterator[Finding]:
    """Yield one finding a host that computes on its CPU with more threads than cores.

    Args:
        ranks: what each rank says of itself; nothing is said of hosts whose cores are not known.
    """
    for host in dict.fromkeys(rank.host for rank in ranks):
        here = [rank for rank in ranks if rank.host == host and rank.device == "cpu"]
        threads, cores = sum(rank.threads for rank in here), here[0].node_cores if here else None
        # Ranks of one thread each only share: nobody waits for a thread that has no core.
        if cores is not None and threads > max(cores, len(here)):
            message = (
                f"the {len(here)} ranks on {host} use {threads} threads on {cores} cores: OpenMP's threads spin while "
                "they wait, and steps can take many times as long; use --threads or OMP_NUM_THREADS"
            )
            yield Finding(code="oversubscribed", severity="warning", message=message)
