"""The dimension of a collective: by its group's members, its description, or where it was issued; else unknown."""

import pytest

from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.communication.dimensions import Dimensions, described_dimension
from perfkit.records.trace_header import PerfkitHeader
from perfkit.trace.events import Header, ProcessGroup

MESH = {"pp": 2, "dp": 2, "tp": 2}


@pytest.mark.parametrize(
    ("members", "dimension"),
    [
        ("[0, 1]", "tp"),
        ("[0, 2]", "dp"),
        ("[1, 5]", "pp"),
        ("[0, 1, 2, 3]", "dp+tp"),
        ("[0, 1, 2, 3, 4, 5, 6, 7]", "pp+dp+tp"),
        ("[3]", None),
        ("[0, 99]", None),
        ("[0, 1, ...]", None),
        ("0, 1", None),
    ],
)
def test_members_tell_the_dimension_of_a_known_mesh(members: str, dimension: str | None) -> None:
    """A group spans the dimensions along which its members differ; impossible or abbreviated members tell nothing."""
    dimensions = Dimensions(Header(perfkit=PerfkitHeader(mesh=MESH)))
    assert dimensions.name(CollectiveKey("all_reduce", members=members), None, 0) == dimension


def test_members_come_from_the_headers_list_of_groups() -> None:
    """A collective with only the name of its group finds the members in the header."""
    groups = [ProcessGroup(name="4", description="mesh_x", ranks=(0, 2))]
    dimensions = Dimensions(Header(groups=groups, perfkit=PerfkitHeader(mesh=MESH)))
    assert dimensions.name(CollectiveKey("all_reduce", group="4"), None, 0) == "dp"
    assert Dimensions(Header(groups=groups)).name(CollectiveKey("all_reduce", group="4"), None, 0) == "x"


@pytest.mark.parametrize(
    ("mesh", "dimension"),
    [({"pp": 2}, "pp"), ({"cp": 2, "dp": 2}, "cp"), ({"pp": 2, "cp": 2}, None), ({"dp": 2}, None), ({}, None)],
)
def test_a_send_without_a_group_belongs_to_the_only_dimension_that_sends(
    mesh: dict[str, int], dimension: str | None
) -> None:
    """Of a pipeline and a ring, either may send."""
    dimensions = Dimensions(Header(perfkit=PerfkitHeader(mesh=mesh)))
    assert dimensions.name(CollectiveKey("send"), None, 0) == dimension
    assert dimensions.name(CollectiveKey("all_reduce"), None, 0) is None


@pytest.mark.parametrize("mesh", [{"dp": 0}, {"dp": -2}, {"dp": 2**40}, {"a": 2**11, "b": 2**11}])
def test_a_mesh_that_cannot_be_is_ignored(mesh: dict[str, int]) -> None:
    """A header may contain any numbers."""
    dimensions = Dimensions(Header(perfkit=PerfkitHeader(mesh=mesh)))
    assert dimensions.name(CollectiveKey("all_reduce", members="[0, 1]"), None, 0) is None


@pytest.mark.parametrize(
    ("description", "dimension"),
    [
        ("mesh_tp", "tp"),
        ("mesh_dp_shard_cp", "shard+cp"),
        ("mesh_dp_replicate", "replicate"),
        ("mesh_fsdp", "shard"),
        ("mesh_dp_cp", "dp+cp"),
        ("mesh_blocks", "blocks"),
        ("mesh_dim_0", None),
        ("mesh_default", None),
        ("default_pg", None),
        ("undefined", None),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", "cp+tp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp+cp"),
        ("DATA_PARALLEL_GROUP_GLOO", "dp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("EMBEDDING_GROUP", "pp"),
        (None, None),
    ],
)
def test_descriptions(description: str | None, dimension: str | None) -> None:
    """What DeviceMesh, torchtitan and Megatron-LM call their groups."""
    assert described_dimension(description) == dimension


def test_the_default_group_is_data_parallel_only_where_ddp_issues() -> None:
    """An all-reduce of a metric over all ranks is not known to be data-parallel; one from DDP's hook is."""
    dimensions = Dimensions(Header(groups=[ProcessGroup(name="0", description="default_pg", ranks=(0, 1))]))
    assert dimensions.name(CollectiveKey("all_reduce", group="0"), None, 0) is None
    assert dimensions.name(CollectiveKey("all_reduce", group="0"), None, 1) == "dp"
    assert dimensions.name(CollectiveKey("dispatch"), None, 0) == "ep"


@pytest.mark.parametrize(
    ("named", "dimension"),
    [
        ({"mesh_dp": (0, 1), "mesh_pp": (0, 2)}, "pp+dp"),
        ({"mesh_tp": (0, 1, 2, 3)}, "tp"),
        ({"mesh_dp": (0, 1)}, None),
        ({"mesh_dp": (0, 1), "mesh_cp": (0, 1)}, None),
        ({"mesh_dp": (0, 1), "mesh_pp": (0, 2), "mesh_dp_cp": (0, 1)}, "pp+dp"),
        ({"mesh_dp": (0, 1, 2, 3), "mesh_shard": (0, 2)}, None),
        ({"mesh_dp": (0, 1), "mesh_pp": (0, 4)}, None),
        ({"mesh_dp": (2, 3), "mesh_pp": (0, 2)}, None),
        ({}, None),
    ],
)
def test_named_groups_tell_what_a_group_without_a_name_spans(
    named: dict[str, tuple[int, ...]], dimension: str | None
) -> None:
    """As the mesh would whose dimensions they are: together they have its ranks, and only one in common."""
    groups = [ProcessGroup(name="0", description="default_pg", ranks=(0, 1, 2, 3))]
    groups += [ProcessGroup(name=name, description=name, ranks=ranks) for name, ranks in named.items()]
    dimensions = Dimensions(Header(rank=0, groups=groups))
    assert dimensions.name(CollectiveKey("all_reduce", group="0"), None, 0) == dimension
