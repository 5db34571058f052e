"""Name the dimension of parallelism that a collective serves: data, tensor, pipeline … (metrics.md section 5).

The members of its process group tell it where the mesh of ranks is known; else what the program calls the group; else
where it was issued. A dimension that none of these identifies stays unknown: it is never taken for data parallelism.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.communication.issue_sites import in_gradient_hook
from perfkit.engine.kinds.classify import nested_on_thread
from perfkit.trace.events import MOST_RANKS, EventKind, Events, Header
from perfkit.trace.intervals import Ints

DIMENSIONS: Final = ("pp", "replicate", "dp", "shard", "cp", "ep", "tp")
"""perfkit's names of the usual dimensions, outermost first: a program may have others."""

_JOINT: Final = "+"
"""Between the dimensions of a group that spans several, such as `dp+cp`."""

PIPELINE: Final = "pp"
"""The dimension of pipelines."""
_POINT_TO_POINT: Final = frozenset({"send", "recv"})
_EXPERT_OPERATORS: Final = frozenset({"dispatch", "combine"})

_MESH: Final = re.compile(r"mesh_(?!dim_\d+$|default$)(\w+)")
"""`torch.distributed.device_mesh` names a group after its dimension, if that has a name."""

_MESH_NAMES: Final = (
    (r"dp_replicate|ddp|replicate", "replicate"),
    (r"dp_shard|fsdp|shard", "shard"),
    (r"dp|data", "dp"),
    (r"cp|context|ring|ulysses", "cp"),
    (r"ep|experts?", "ep"),
    (r"tp|tensor", "tp"),
    (r"pp|pipe|pipeline|stages?", "pp"),
)
"""What programs call the dimensions of a mesh: torchtitan (`dp_shard_cp` spans two), PyTorch's examples."""

_MEGATRON: Final = (
    (r"EXPERT_DATA_PARALLEL_GROUP|DATA_PARALLEL_GROUP(?!_WITH_CP)", "dp"),
    (r"DATA_PARALLEL_GROUP_WITH_CP", "dp+cp"),
    (r"EXPERT_TENSOR_PARALLEL_GROUP|TENSOR_MODEL_PARALLEL_GROUP", "tp"),
    (r"TENSOR_AND_CONTEXT_PARALLEL_GROUP", "cp+tp"),
    (r"PIPELINE_MODEL_PARALLEL_GROUP|(POSITION_)?EMBEDDING_GROUP", "pp"),
    (r"CONTEXT_PARALLEL_GROUP|HIERARCHICAL_CONTEXT_PARALLEL_GROUPS?", "cp"),
    (r"EXPERT_MODEL_PARALLEL_GROUP", "ep"),
)
"""What Megatron-LM's `parallel_state` calls its groups; programs derived from it append a suffix."""


class _Site(NamedTuple):
    """Annotations within which the program issues collectives of one dimension."""

    beginning: str
    """How their names begin."""
    operators: frozenset[str]
    """The collectives that only this part of torch issues there: what it encloses may issue others."""
    dimension: str


_SITES: Final = (
    _Site("FSDP::", frozenset({"all_gather", "reduce_scatter"}), "shard"),
    _Site("FSDP::", frozenset({"all_reduce"}), "replicate"),
    _Site("FSDP::all_gather", frozenset({"unknown"}), "shard"),
    _Site("FullyShardedDataParallel._", frozenset({"all_gather", "reduce_scatter"}), "shard"),
    _Site("FullyShardedDataParallel._", frozenset({"all_reduce"}), "replicate"),
    _Site("DistributedDataParallel.forward", frozenset({"broadcast"}), "dp"),
    _Site("Optimizer.step#ZeroRedundancyOptimizer", frozenset({"broadcast"}), "dp"),
    _Site("PP:", frozenset({"send", "recv", "send_recv"}), "pp"),
)
"""FSDP2, FSDP1 (but not its `forward`, which encloses the model's), DDP's broadcasts of buffers, those of parameters by
ZeroRedundancyOptimizer, and pipeline schedules, as torch annotates them. The first that applies decides."""

_DDP_HOOK: Final = 1
"""The lowest bit of a code; each of `_SITES` has one of the next."""


def find_issuing_sites(events: Events, rows: Ints) -> Ints:
    """Return where the collective at each row (-1: unknown) was issued, as a code for `Dimensions.name`; shape (c,)."""
    code = np.where(in_gradient_hook(events, rows), _DDP_HOOK, 0).astype(np.int64)
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        return code
    for beginning in dict.fromkeys(site.beginning for site in _SITES):
        named = events.shapes.beginning_with(beginning)
        sites = events.rows(EventKind.ANNOTATION, EventKind.OPERATOR, named=named)
        within = nested_on_thread(events, rows[known], sites)
        code[known[within]] |= sum(
            _DDP_HOOK << place for place, site in enumerate(_SITES, 1) if site.beginning == beginning
        )
    return code


def is_ddp_hook(site: int) -> bool:
    """Return whether a code of `find_issuing_sites` is that of a gradient hook."""
    return bool(site & _DDP_HOOK)


class Dimensions:
    """The dimensions of a rank's process groups.

    Args:
        header: the header of the rank's trace.
    """

    def __init__(self, header: Header) -> None:
        own = header.perfkit
        self._sizes = own.mesh if own and 0 < _product(own.mesh.values()) <= MOST_RANKS else {}
        self._groups = {group.name: group for group in header.groups}
        self._named = {} if self._sizes else _named_groups(header)

    def name(self, collective: CollectiveKey, description: str | None, site: int) -> str | None:
        """Return the dimension of a collective; None if it is unknown.

        Args:
            collective: its identity.
            description: what the event calls its group, if it does.
            site: where it was issued, as in `find_issuing_sites`.
        """
        group = self._groups.get(collective.group) if collective.group is not None else None
        ranks = listed_ranks(collective.members) or (group.ranks if group else None)
        by_mesh = self._by_mesh(ranks) if ranks else self._of_point_to_point(collective.operator)
        by_name = described_dimension(description or (group.description if group else None))
        by_site = by_mesh or by_name or _by_site(collective.operator, site)
        return by_site or (self._spanned(frozenset(ranks)) if ranks else None)

    def _by_mesh(self, ranks: Sequence[int]) -> str | None:
        """Return the dimensions of the mesh along which the members differ."""
        if not self._sizes or len(ranks) < 2 or max(ranks) >= _product(self._sizes.values()):
            return None
        rest, varying = np.asarray(ranks, np.int64), []
        for name, size in reversed(self._sizes.items()):
            rest, position = np.divmod(rest, size)
            if (position != position[0]).any():
                varying.append(name)
        return _JOINT.join(reversed(varying)) or None

    def _spanned(self, ranks: frozenset[int]) -> str | None:
        """Return the dimensions whose named groups together span just these ranks, as those of a mesh do."""
        within = {name: group for name, group in self._named.items() if group <= ranks}
        if not within or _product(map(len, within.values())) != len(ranks):
            return None
        apart = all(len(one & other) == 1 for one, other in combinations(within.values(), 2))
        return _JOINT.join(name for name in DIMENSIONS if name in within) if apart else None

    def _of_point_to_point(self, operator: str) -> str | None:
        """Return the dimension of a send or receive, whose group gloo's traces lack: only these two have any."""
        found = [name for name in ("pp", "cp") if self._sizes.get(name, 1) > 1]
        return found[0] if operator in _POINT_TO_POINT and len(found) == 1 else None


def _named_groups(header: Header) -> dict[str, frozenset[int]]:
    """Return the group of the rank along each dimension that the program names; without dimensions of two groups."""
    found: dict[str, set[frozenset[int]]] = {}
    for group in header.groups:
        dimension = described_dimension(group.description)
        if dimension in DIMENSIONS and group.ranks and header.rank in group.ranks and len(group.ranks) > 1:
            found.setdefault(dimension, set()).add(frozenset(group.ranks))
    return {dimension: groups.pop() for dimension, groups in found.items() if len(groups) == 1}


def described_dimension(description: str | None) -> str | None:
    """Return the dimension in a group's description; None if there is none."""
    if description is None:
        return None
    if (mesh := _MESH.fullmatch(description)) is not None:
        return _mesh_dimension(mesh[1])
    return next((name for pattern, name in _MEGATRON if re.match(rf"(?:{pattern})(?![A-Z])", description)), None)


def _mesh_dimension(given: str) -> str:
    """Return perfkit's name of a mesh's dimension, or of several in one; an unusual one keeps its own."""
    rest, found = given.lower(), []
    while rest:
        match = next(
            ((part, name) for pattern, name in _MESH_NAMES if (part := re.match(rf"(?:{pattern})(?:_|$)", rest))), None
        )
        if match is None:
            return given
        part, name = match
        rest = rest[part.end() :]
        found.append(name)
    return _JOINT.join(name for name in DIMENSIONS if name in found)


def _by_site(operator: str, code: int) -> str | None:
    if operator in _EXPERT_OPERATORS:
        return "ep"
    if is_ddp_hook(code) and operator == "all_reduce":
        return "dp"
    within = (site for place, site in enumerate(_SITES, 1) if code & _DDP_HOOK << place)
    return next((site.dimension for site in within if operator in site.operators), None)


def listed_ranks(members: str | None) -> tuple[int, ...] | None:
    """Return the ranks that a trace lists, such as `[0, 2]`; None if it lists none or abbreviates them."""
    if members is None or not re.fullmatch(r"\[\s*\d{1,7}(\s*,\s*\d{1,7})*\s*\]", members):
        return None
    return tuple(int(rank) for rank in re.findall(r"\d+", members))


def _product(sizes: Iterable[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
        if not 0 < size <= MOST_RANKS or product > MOST_RANKS:
            return 0
    return product
