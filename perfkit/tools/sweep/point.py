"""A point of a sweep is one run: its identity, and the name of its folder.

A point is identified by workload, world size, effective configuration and repeat. The folder's name contains a readable
part and a hash of workload, ranks and configuration: `gpt-hdf5-2ranks-batch16-compile=true-3fa9c1d2-r1`. A sweep with
an additional axis therefore finds existing points, and other configurations never use their folders.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import replace

from perfkit.options.identity import identity_options
from perfkit.records.common import UNNAMED
from perfkit.records.manifest import RunManifest
from perfkit.records.sweep import ScalingKind

END_OF_OPTIONS: Final = "--"
_FOUND: Final = ("optimizer",)
"""What a script's run finds out itself and adds to its configuration."""
_KEY_DIGITS: Final = 8
_VALUE_LENGTH: Final = 24
_TITLE_LENGTH: Final = 160
"""With suffix and `.log` well below 255 bytes, the limit of most file systems."""

_UNSAFE = re.compile(r"[^A-Za-z0-9.+=_-]+")


class Point(Struct, frozen=True, kw_only=True):
    """One run of a sweep."""

    title: str
    """The readable part of its folder's name."""
    key: str
    """Hexadecimal: shared by all repeats of a configuration, and by no other."""
    ranks: int
    repeat: int = 1
    scaling: tuple[ScalingKind, ...] = ()
    workload: str
    config: dict[str, Any]
    """The effective configuration, without the location of the run."""
    varied: dict[str, str] = {}
    """The values of what the sweep varies, as they were given."""
    batch_size: int | None = None
    """Samples per rank as the sweep sets them; None for a script without `--batch-arg`."""
    arguments: tuple[str, ...]
    """The arguments of `perfkit run`, except `--name`."""
    trace_dir: str
    """The folder that contains the run folder."""

    @property
    def suffix(self) -> str:
        """The end of its folder's name, which identifies it."""
        return f"-{self.key}-r{self.repeat}"

    @property
    def name(self) -> str:
        return self.title + self.suffix

    @property
    def command(self) -> list[str]:
        """The arguments of `perfkit`."""
        given = list(self.arguments)
        end = given.index(END_OF_OPTIONS) if END_OF_OPTIONS in given else len(given)
        return ["run", *given[:end], "--no-report", "--name", self.name, *given[end:]]

    def as_repeat(self, repeat: int) -> Self:
        return replace(self, repeat=repeat)

    def matches(self, manifest: RunManifest) -> bool:
        """Return whether a manifest is of this point, completed or not."""
        recorded = identity_options(manifest.config)
        own = {name: value for name, value in recorded.items() if name not in _FOUND or name in self.config}
        same_ranks = manifest.world.world_size == self.ranks
        return same_ranks and manifest.workload == self.workload and own == self.config


def make_point(
    workload: str,
    ranks: int,
    config: Mapping[str, Any],
    arguments: Sequence[str],
    varied: Mapping[str, str],
    batch: int | None,
) -> Point:
    """Build the first repeat of a point."""
    own = identity_options(config)
    canonical = json.dumps([workload, ranks, own], sort_keys=True, separators=(",", ":"))
    source = [] if config["source"] == UNNAMED else [str(config["source"])]
    parts = [workload, *source, "1rank" if ranks == 1 else f"{ranks}ranks", *([f"batch{batch}"] if batch else [])]
    parts += [f"{option}={_short(value)}" for option, value in varied.items() if option not in ("source", "batch_size")]
    return Point(
        title="-".join(parts)[:_TITLE_LENGTH],
        key=hashlib.sha256(canonical.encode()).hexdigest()[:_KEY_DIGITS],
        ranks=ranks,
        workload=workload,
        config=own,
        varied=dict(varied),
        batch_size=batch,
        arguments=tuple(arguments),
        trace_dir=str(config["trace_dir"]),
    )


def _short(value: str) -> str:
    """Return a value as part of a file name; the key distinguishes values that become equal."""
    return _UNSAFE.sub("_", value)[-_VALUE_LENGTH:]
