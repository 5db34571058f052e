"""A point of a sweep: one run. What tells it from others, and the name of its folder.

A point is its workload, its ranks, its effective configuration and its repeat. The folder's name says the first two and
what is varied for people, and a hash of all of it for perfkit: `gpt-hdf5-2ranks-batch16-compile=true-3fa9c1d2-r1`.
So an axis that is added later finds the points that are there, and another configuration never takes their folders.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import replace

from perfkit.schema.config_identity import identity_options
from perfkit.schema.manifest import RunManifest
from perfkit.schema.sweep import ScalingKind

_KEY_DIGITS: Final = 8
_VALUE_LENGTH: Final = 24
_TITLE_LENGTH: Final = 160
"""With the suffix, and `.log`, well below the 255 of file systems."""

_UNSAFE = re.compile(r"[^A-Za-z0-9.+=_-]+")


class Point(Struct, frozen=True, kw_only=True):
    """One run of a sweep."""

    title: str
    """The readable part of its folder's name."""
    key: str
    """Hexadecimal: the same for all repeats of a configuration, and for no other."""
    ranks: int
    repeat: int = 1
    scaling: tuple[ScalingKind, ...] = ()
    workload: str
    config: dict[str, Any]
    """The effective configuration, without what says where it lies."""
    arguments: tuple[str, ...]
    """What follows `perfkit run`, all but the name."""
    trace_dir: str
    """The folder that receives its run folder."""

    @property
    def suffix(self) -> str:
        """The end of its folder's name, by which it is found."""
        return f"-{self.key}-r{self.repeat}"

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.title + self.suffix

    @property
    def command(self) -> list[str]:
        """What follows `perfkit`."""
        return ["run", *self.arguments, "--name", self.name]

    def again(self, repeat: int) -> Self:
        """Return the same point with another number."""
        return replace(self, repeat=repeat)

    def is_run_by(self, manifest: RunManifest) -> bool:
        """Say whether a manifest is that of this point, completed or not."""
        same_ranks = manifest.world.world_size == self.ranks
        return same_ranks and manifest.workload == self.workload and identity_options(manifest.config) == self.config


def make_point(
    workload: str, ranks: int, config: Mapping[str, Any], arguments: Sequence[str], shown: Mapping[str, str]
) -> Point:
    """Make the first repeat of a point.

    Args:
        workload: Its name.
        ranks: How many.
        config: The effective configuration, every option by name.
        arguments: What follows `perfkit run`.
        shown: Options to say in the name besides source and batch size, with their values.
    """
    own = identity_options(config)
    canonical = json.dumps([workload, ranks, own], sort_keys=True, separators=(",", ":"))
    parts = [workload, str(config["source"]), f"{ranks}ranks", f"batch{config['batch_size']}"]
    parts += [f"{option}={_short(value)}" for option, value in shown.items()]
    return Point(
        title="-".join(parts)[:_TITLE_LENGTH],
        key=hashlib.sha256(canonical.encode()).hexdigest()[:_KEY_DIGITS],
        ranks=ranks,
        workload=workload,
        config=own,
        arguments=tuple(arguments),
        trace_dir=str(config["trace_dir"]),
    )


def _short(value: str) -> str:
    """Return a value as a part of a file's name; the key tells apart what becomes the same."""
    return _UNSAFE.sub("_", value)[-_VALUE_LENGTH:]
