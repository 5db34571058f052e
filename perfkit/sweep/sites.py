"""The nodes of supported sites, one row per site."""

from typing import Final, Literal

from msgspec import Struct

Scheduler = Literal["pbs", "slurm", "hostfile"]


class Site(Struct, frozen=True, kw_only=True):
    """The nodes of one site."""

    scheduler: Scheduler
    cores: tuple[str, ...]
    """The cores next to the device of each local rank: `perfkit run` gives local rank i device i."""
    depth: int
    """Cores per rank."""
    chunk: str = ""
    """Additional text in the request for nodes."""
    directives: tuple[str, ...] = ()
    """Directives without which the scheduler refuses a job, or places it badly."""
    environment: tuple[tuple[str, str], ...] = ()


SITES: Final[dict[str, Site]] = {
    # 4 A100 per node. GPU 0 is next to the last quarter of the cores, GPU 3 next to the first: an ascending list
    # would bind every rank far from its GPU.
    "polaris": Site(
        scheduler="pbs",
        cores=("24-31", "16-23", "8-15", "0-7"),
        depth=8,
        chunk="system=polaris",
        directives=("-l place=scatter", "-l filesystems=home:eagle"),
    ),
    # 6 GPUs of 2 tiles per node, each tile its own device under FLAT; six tiles next to each socket of 52 cores, the
    # first of which (0, 52) is reserved for the operating system.
    "aurora": Site(
        scheduler="pbs",
        cores=(
            *("1-8", "9-16", "17-24", "25-32", "33-40", "41-48"),
            *("53-60", "61-68", "69-76", "77-84", "85-92", "93-100"),
        ),
        depth=8,
        directives=("-l place=scatter", "-l filesystems=home:flare"),
        environment=(("ZE_FLAT_DEVICE_HIERARCHY", "FLAT"),),
    ),
}
