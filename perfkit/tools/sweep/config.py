"""Options of `perfkit sweep`: names, types, defaults and invalid combinations."""

import re
import shlex
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from perfkit.base.parsing import parse_duration
from perfkit.errors import UsageError
from perfkit.options.help_groups import COMMON
from perfkit.options.mesh import parse_mesh
from perfkit.records.sweep import ScalingKind
from perfkit.tools.sweep.plan import Axis, parse_axis, parse_ranks, parse_values

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


_Count = Annotated[int, Meta(ge=1)]
_WALLTIME: Final = re.compile(r"(\d+-)?\d{1,3}:\d\d:\d\d")
_NAME: Final = re.compile(r"[\w@.:+-]+")


class PointOptions(Struct, frozen=True, kw_only=True):
    """Which points a sweep has."""

    ranks: Annotated[
        str | None,
        COMMON,
        Meta(description="World sizes, for example 1,2,4 [default: 1,2; with --mesh those of the meshes]."),
    ] = None
    mesh: Annotated[
        tuple[str, ...],
        COMMON,
        Meta(
            description="Mesh of the ranks, for example dp=2,tp=2; repeatable. One that does not work with the other "
            "options is left out."
        ),
    ] = ()
    scaling: Annotated[
        str,
        COMMON,
        Meta(
            description="Which batch size is kept: strong, the global one; weak, that of each rank; strong,weak does "
            "both. The smallest world size, or the mesh with the fewest replicas, uses the given --batch-size."
        ),
    ] = "weak"
    source: Annotated[
        str | None,
        COMMON,
        Meta(description="Input sources, such as memory,hdf5 [default: memory; of a script none]."),
    ] = None
    batch_arg: Annotated[
        str | None,
        COMMON,
        Meta(description="The argument of a script with its batch size: for --scaling, such as --batch_size."),
    ] = None
    run_options: Annotated[
        str | None,
        Meta(description="Of a script: options of perfkit run, for example '--schedule active=20 --step-on backward'."),
    ] = None
    vary: Annotated[
        tuple[str, ...],
        COMMON,
        Meta(
            description="Values of an option, such as compile=false,true; any option of perfkit run, or a name in "
            "braces in a script's arguments; repeatable, for every combination. Separate values that contain commas "
            "with semicolons."
        ),
    ] = ()
    repeat: Annotated[int, COMMON, Meta(ge=1, description="Runs per point.")] = 1

    def __post_init__(self) -> None:
        for scaling in self.scalings:
            if scaling not in get_args(ScalingKind):
                raise UsageError(
                    f"--scaling {self.scaling}: '{scaling}' is not one of {', '.join(get_args(ScalingKind))}"
                )
        if self.mesh and self.ranks is not None:
            raise UsageError("--ranks: the sizes of each --mesh give its number of ranks; remove one of them")
        for mesh in self.mesh:
            parse_mesh(mesh)
            if self.mesh.count(mesh) > 1:
                raise UsageError(f"--mesh {mesh} is given twice")
        _ = self.world_sizes, self.axes, self.run_tokens

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """The world sizes, smallest first; not used with meshes."""
        return parse_ranks(self.ranks or "1,2")

    @property
    def scalings(self) -> tuple[ScalingKind, ...]:
        return parse_values(self.scaling, "--scaling")  # type: ignore[return-value]  # checked on construction

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The varied options, the source first."""
        given = tuple(parse_axis(text) for text in self.vary)
        if any(axis.option == "source" for axis in given):
            raise UsageError("--vary source: use --source")
        if any(axis.option == "mesh" for axis in given):
            raise UsageError("--vary mesh: use --mesh, once for each")
        meshes = (Axis("mesh", self.mesh),) if self.mesh else ()
        return (Axis("source", parse_values(self.source or "memory", "--source")), *meshes, *given)

    def of_script(self) -> tuple[Axis, ...]:
        """Return the varied options of a script, which has no source unless one is given.

        Raises:
            UsageError: An option is for workloads only.
        """
        if self.mesh:
            raise UsageError("--mesh is for workloads: vary an argument of the script (--vary tp=1,2 -- --tp {tp})")
        return self.axes if self.source is not None else self.axes[1:]

    @property
    def run_tokens(self) -> tuple[str, ...]:
        """The options of `perfkit run` for a script, split as by a shell."""
        return split_words(self.run_options, "--run-options")


class RunningOptions(Struct, frozen=True, kw_only=True):
    """How and in which order points run."""

    trace_dir: Annotated[
        str | None,
        COMMON,
        Meta(
            description="Folder of the sweep; points that are complete there are skipped [default: traces/sweep-NAME]."
        ),
    ] = None
    launcher: Annotated[
        Literal["mpiexec", "torchrun", "perfkit"] | None,
        Meta(
            description="What starts the ranks; perfkit means perfkit run -n [default: mpiexec if found, else perfkit; "
            "of a script perfkit]."
        ),
    ] = None
    launcher_options: Annotated[
        str | None, Meta(description="Options of the launcher, for example '--bind-to none'.")
    ] = None
    random_order: Annotated[
        bool, Meta(description="Shuffle the points, so that drift is not mistaken for scaling.")
    ] = False
    order_seed: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Seed of the random order [default: 0].")
    ] = None
    pause: Annotated[str, Meta(description="Pause between two points, for example 10s.")] = "0s"
    dry_run: Annotated[bool, COMMON, Meta(description="Print the commands without running them.")] = False

    def __post_init__(self) -> None:
        if self.order_seed is not None and not self.random_order:
            raise UsageError("--order-seed has no effect without --random-order")
        _ = self.pause_s, self.launcher_tokens

    @property
    def pause_s(self) -> float:
        """Seconds between two points."""
        return parse_duration(self.pause, "--pause") / 1e9

    @property
    def launcher_tokens(self) -> tuple[str, ...]:
        """The launcher's own options, split as by a shell."""
        return split_words(self.launcher_options, "--launcher-options")


def split_words(text: str | None, option: str) -> tuple[str, ...]:
    """Split the value of an option as a shell would.

    Raises:
        UsageError: It cannot be split.
    """
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error


class EmitOptions(Struct, frozen=True, kw_only=True):
    """Where the job scripts run."""

    emit: Annotated[
        Scheduler | None, COMMON, Meta(description="Write job scripts and run nothing; one script per number of nodes.")
    ] = None
    site: Annotated[str | None, Meta(description=f"Site with known nodes and affinity: {', '.join(SITES)}.")] = None
    ranks_per_node: Annotated[_Count | None, Meta(description="Ranks per node [default: the site's].")] = None
    cores_per_rank: Annotated[
        _Count | None, Meta(description="Cores to bind each rank to [default: the site's affinity, else no binding].")
    ] = None
    account: Annotated[str | None, Meta(description="Project to charge.")] = None
    queue: Annotated[str | None, Meta(description="PBS queue or Slurm partition.")] = None
    walltime: Annotated[str | None, Meta(description="Time limit per job, for example 1:00:00.")] = None
    directive: Annotated[
        tuple[str, ...],
        Meta(description="Additional scheduler directive, for example '-l filesystems=home'; repeatable."),
    ] = ()
    setup: Annotated[
        str | None, Meta(description="Shell file that jobs source first, for modules and environment.")
    ] = None
    hostfile: Annotated[str | None, Meta(description="File with one host per line, for --emit hostfile.")] = None

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if name != "emit" and getattr(self, name) not in (None, ())]
        if self.emit is None and given:
            raise UsageError(f"--{given[0].replace('_', '-')} is for job scripts: add --emit")
        if self.site is not None:
            self._check_site(self.site)
        if self.emit is not None and self.site is None and self.ranks_per_node is None:
            raise UsageError("--emit needs the number of ranks per node: add --ranks-per-node or --site")
        self._check_scheduler()
        self._check_texts()

    def _check_site(self, name: str) -> None:
        if name not in SITES:
            raise UsageError(f"--site {name}: unknown site; choose from {', '.join(SITES)}, or use --ranks-per-node")
        site = SITES[name]
        if self.emit != site.scheduler:
            raise UsageError(f"--site {name} uses {site.scheduler}: use --emit {site.scheduler}")
        if self.cores_per_rank is not None:
            raise UsageError(f"--cores-per-rank: --site {name} defines the cores; remove one of them")
        if self.ranks_per_node is not None and self.ranks_per_node > len(site.cores):
            raise UsageError(f"--ranks-per-node {self.ranks_per_node}: nodes of {name} have at most {len(site.cores)}")

    def _check_scheduler(self) -> None:
        if self.emit == "hostfile":
            if self.hostfile is None:
                raise UsageError("--emit hostfile needs hosts: add --hostfile FILE")
            for name in ("account", "queue", "walltime", "directive"):
                if getattr(self, name):
                    raise UsageError(f"--{name} is for schedulers only, not for --emit hostfile: remove it")
        elif self.hostfile is not None:
            raise UsageError(f"--hostfile: {self.emit} assigns the hosts; remove it")

    def _check_texts(self) -> None:
        """Refuse text that could break a scheduler directive: no shell quoting applies there."""
        for name in ("account", "queue"):
            text = getattr(self, name)
            if text is not None and _NAME.fullmatch(text) is None:
                raise UsageError(f"--{name} {text}: not a valid name")
        if self.walltime is not None and _WALLTIME.fullmatch(self.walltime) is None:
            raise UsageError(f"--walltime {self.walltime}: write it as hours:minutes:seconds, for example 1:00:00")
        for text in self.directive:
            if not text.startswith("-") or not text.isprintable():
                raise UsageError(
                    f"--directive {text}: must be one option of the scheduler, for example '-l filesystems=home'"
                )
