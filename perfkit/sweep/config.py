"""The options of `perfkit sweep`: their names, types, defaults, and what may not be combined."""

import re
import shlex
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from perfkit.capture.config import parse_duration
from perfkit.errors import UsageError
from perfkit.schema.sweep import ScalingKind
from perfkit.sweep.plan import Axis, parse_axis, parse_ranks, parse_values
from perfkit.sweep.sites import SITES, Scheduler

_Count = Annotated[int, Meta(ge=1)]
_WALLTIME: Final = re.compile(r"(\d+-)?\d{1,3}:\d\d:\d\d")
_NAME: Final = re.compile(r"[\w@.:+-]+")


class PointOptions(Struct, frozen=True, kw_only=True):
    """What is run."""

    ranks: Annotated[str, Meta(description="Numbers of ranks.")] = "1,2"
    scaling: Annotated[
        str,
        Meta(
            description="strong keeps the batch of all ranks together, weak that of a rank; strong,weak does both. The "
            "fewest ranks have the batch size of the options."
        ),
    ] = "weak"
    source: Annotated[str, Meta(description="Input sources, as memory,hdf5,safetensors.")] = "memory"
    vary: Annotated[
        tuple[str, ...],
        Meta(
            description="Values of any option of perfkit run, as compile=false,true; repeatable, for every "
            "combination. Values that hold commas are separated by semicolons."
        ),
    ] = ()
    repeat: Annotated[int, Meta(ge=1, description="Runs of every point.")] = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            UsageError: Naming the option.
        """
        for scaling in self.scalings:
            if scaling not in get_args(ScalingKind):
                raise UsageError(f"--scaling {self.scaling}: '{scaling}' is none of {', '.join(get_args(ScalingKind))}")
        _ = self.world_sizes, self.axes

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The numbers of ranks, smallest first."""
        return parse_ranks(self.ranks)

    @property
    def scalings(self) -> tuple[ScalingKind, ...]:
        """The kinds of scaling."""
        return parse_values(self.scaling, "--scaling")  # type: ignore[return-value]  # checked when it is made

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The options that are varied, the source first."""
        given = tuple(parse_axis(text) for text in self.vary)
        if any(axis.option == "source" for axis in given):
            raise UsageError("--vary source: use --source")
        return (Axis("source", parse_values(self.source, "--source")), *given)


class RunningOptions(Struct, frozen=True, kw_only=True):
    """How and in which order points are run."""

    trace_dir: Annotated[
        str | None,
        Meta(
            description="Folder of the sweep; points that are complete there are skipped "
            "[default: traces/sweep-WORKLOAD]."
        ),
    ] = None
    launcher: Annotated[
        Literal["mpiexec", "torchrun", "perfkit"] | None,
        Meta(description="Starts the ranks; perfkit is perfkit run -n [default: mpiexec where there is one]."),
    ] = None
    launcher_options: Annotated[str | None, Meta(description="Options of the launcher, as '--bind-to none'.")] = None
    random_order: Annotated[bool, Meta(description="Shuffle the points, so that drift does not pass for scaling.")] = (
        False
    )
    order_seed: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="Another random order [default: 0].")] = (
        None
    )
    pause: Annotated[str, Meta(description="Wait between two points, as 10s.")] = "0s"
    dry_run: Annotated[bool, Meta(description="Print the commands, and run nothing.")] = False

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            UsageError: Naming the option.
        """
        if self.order_seed is not None and not self.random_order:
            raise UsageError("--order-seed has no effect without --random-order")
        _ = self.pause_s, self.launcher_tokens

    @property
    def pause_s(self) -> float:
        """Seconds between two points."""
        return parse_duration(self.pause, "--pause") / 1e9

    @property
    def launcher_tokens(self) -> tuple[str, ...]:
        """The launcher's own options, split as a shell does."""
        try:
            return tuple(shlex.split(self.launcher_options or ""))
        except ValueError as error:
            raise UsageError(f"--launcher-options {self.launcher_options}: {error}") from error


class EmitOptions(Struct, frozen=True, kw_only=True):
    """What job scripts are written for."""

    emit: Annotated[
        Scheduler | None, Meta(description="Write job scripts, one for each number of nodes, and run nothing.")
    ] = None
    site: Annotated[str | None, Meta(description=f"Nodes and affinity of a site: {', '.join(SITES)}.")] = None
    ranks_per_node: Annotated[_Count | None, Meta(description="Ranks of a full node [default: the site's].")] = None
    cores_per_rank: Annotated[
        _Count | None, Meta(description="Cores to bind each rank to [default: the site's affinity, else no binding].")
    ] = None
    account: Annotated[str | None, Meta(description="Project that is charged.")] = None
    queue: Annotated[str | None, Meta(description="Queue of PBS, partition of Slurm.")] = None
    walltime: Annotated[str | None, Meta(description="Limit of a job, as 1:00:00.")] = None
    directive: Annotated[
        tuple[str, ...], Meta(description="One more line for the scheduler, as '-l filesystems=home'; repeatable.")
    ] = ()
    setup: Annotated[str | None, Meta(description="File that jobs source first: modules, environment.")] = None
    hostfile: Annotated[str | None, Meta(description="File of hosts, one a line, for --emit hostfile.")] = None

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            UsageError: Naming the option.
        """
        given = [name for name in self.__struct_fields__ if name != "emit" and getattr(self, name) not in (None, ())]
        if self.emit is None and given:
            raise UsageError(f"--{given[0].replace('_', '-')} is for job scripts: give --emit too")
        if self.site is not None:
            self._check_site(self.site)
        if self.emit is not None and self.site is None and self.ranks_per_node is None:
            raise UsageError("--emit: how many ranks has a node? Give --ranks-per-node, or a --site")
        self._check_scheduler()
        self._check_texts()

    def _check_site(self, name: str) -> None:
        if name not in SITES:
            raise UsageError(f"--site {name}: unknown; choose from {', '.join(SITES)}, or give --ranks-per-node")
        site = SITES[name]
        if self.emit != site.scheduler:
            raise UsageError(f"--site {name} has {site.scheduler}: use --emit {site.scheduler}")
        if self.cores_per_rank is not None:
            raise UsageError(f"--cores-per-rank: --site {name} says which cores; leave one of them out")
        if self.ranks_per_node is not None and self.ranks_per_node > len(site.cores):
            raise UsageError(f"--ranks-per-node {self.ranks_per_node}: nodes of {name} take {len(site.cores)}")

    def _check_scheduler(self) -> None:
        if self.emit == "hostfile":
            if self.hostfile is None:
                raise UsageError("--emit hostfile: which hosts? Give --hostfile FILE")
            for name in ("account", "queue", "walltime", "directive"):
                if getattr(self, name):
                    raise UsageError(f"--{name} is for a scheduler, and --emit hostfile has none: leave it out")
        elif self.hostfile is not None:
            raise UsageError(f"--hostfile: {self.emit} says which hosts; leave it out")

    def _check_texts(self) -> None:
        """Refuse what would end a line of the script that a scheduler reads; no shell does."""
        for name in ("account", "queue"):
            text = getattr(self, name)
            if text is not None and _NAME.fullmatch(text) is None:
                raise UsageError(f"--{name} {text}: no name of one")
        if self.walltime is not None and _WALLTIME.fullmatch(self.walltime) is None:
            raise UsageError(f"--walltime {self.walltime}: write it as hours:minutes:seconds, as 1:00:00")
        for text in self.directive:
            if not text.startswith("-") or not text.isprintable():
                raise UsageError(f"--directive {text}: one option of the scheduler, as '-l filesystems=home'")
