"""Names of collectives, as the libraries write them."""

import pytest

from perfkit.engine.communication.collective_metadata import collective_operator


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("c10d::allreduce_", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather"),
        ("c10d::_reduce_scatter_base_", "reduce_scatter"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("gloo:barrier", "barrier"),
        ("gloo:recv", "recv"),
        ("reduce", "reduce"),
        ("void deep_ep::internode::cached_notify_combine", "combine"),
        ("mori::moe::EpDispatchIntraNodeKernel", "dispatch"),
        ("ncclDevKernel_Generic", None),
    ],
)
def test_spellings_of_collectives(name: str, operator: str | None) -> None:
    assert collective_operator(name) == operator
