"""What is particular about the nodes of some sites, as rows."""

from typing import Final, Literal

from msgspec import Struct

Scheduler = Literal["pbs", "slurm", "hostfile"]


class Site(Struct, frozen=True, kw_only=True):
    """The nodes of one site."""

    scheduler: Scheduler
    cores: tuple[str, ...]
    """By local rank the cores beside its device: `perfkit run` gives local rank i device i. As many as ranks a node."""
    depth: int
    """Cores of a rank."""
    chunk: str = ""
    """What the request for nodes says besides their number."""
    directives: tuple[str, ...] = ()
    """Lines for the scheduler without which it refuses a job, or spreads it wrongly."""
    environment: tuple[tuple[str, str], ...] = ()


SITES: Final[dict[str, Site]] = {
    # 4 A100 a node. GPU 0 is beside the last quarter of the cores, GPU 3 beside the first: a list that counts up
    # would put every rank at the far end from its GPU.
    "polaris": Site(
        scheduler="pbs",
        cores=("24-31", "16-23", "8-15", "0-7"),
        depth=8,
        chunk="system=polaris",
        directives=("-l place=scatter", "-l filesystems=home:eagle"),
    ),
    # 6 GPUs of 2 tiles a node, each tile a device of its own under FLAT; six tiles beside each socket of 52 cores,
    # whose first core (0, 52) is the operating system's.
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
