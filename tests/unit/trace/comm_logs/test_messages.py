"""What the messages of NCCL's log mean, as versions from 2.4 to 2.30 write them."""

import time

import pytest

from perfkit.trace.comm_logs.messages import (
    Choice,
    Connection,
    parse_choice,
    parse_connection,
    parse_member,
    parse_network,
    parse_shape,
    parse_variable,
    parse_versions,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Channel 00/0 : 12[4] -> 13[5] via P2P/CUMEM", (12, "4", 13, "5", True, "P2P/CUMEM", False)),
        ("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", (0, "0", 1, "1", True, "SHM/direct", False)),
        ("Channel 01 : 4[901c0] -> 7[a01d0] via P2P/IPC/read", (4, "901c0", 7, "a01d0", True, "P2P/IPC", False)),
        ("Channel 02/0 : 0[0] -> 1[1] via P2P/direct pointer", (0, "0", 1, "1", True, "P2P/direct pointer", False)),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA", (7, "7", 8, "0", True, "NET/IB", True)),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0(3)/GDRDMA(PCI)", (7, "7", 8, "0", True, "NET/IB", True)),
        ("Channel 01/1 : 16[0] -> 0[0] [receive] via NET/IBext_v8/7", (0, "0", 16, "0", False, "NET/IBext_v8", False)),
        ("Channel 03 : 5[a0] -> 6[b0] [receive] via NET/AWS X/3", (6, "b0", 5, "a0", False, "NET/AWS X", False)),
        ("Ring 00 : 34 -> 33 [send] via NET/Socket/0", (34, "", 33, "", True, "NET/Socket", False)),
        ("Channel 00/0 : 0[0] -> 8[0] [send]    via NET/Socket/0/Shared", (0, "0", 8, "0", True, "NET/Socket", False)),
    ],
)  # fmt: skip
def test_connections(text: str, expected: tuple[object, ...]) -> None:
    assert parse_connection(text) == Connection(*expected)  # type: ignore[arg-type]


def test_rccl_names_the_communicator_behind_the_transport() -> None:
    found = parse_connection("Channel 38/0 : 6[800000] -> 4[600000] via P2P/IPC comm 0x40898840 nRanks 08")
    assert found == Connection(6, "800000", 4, "600000", True, "P2P/IPC", False, "0x40898840")
    network = parse_connection("Channel 00/0 : 0[2] -> 8[2] [send] via NET/IB/0/GDRDMA comm 0x4 nRanks 16")
    assert network == Connection(0, "2", 8, "2", True, "NET/IB", True, "0x4")


@pytest.mark.parametrize("text", ["Channel 00/08 :    0   1   2   3", "Channel 00/0 : 1[1] -> via NET", "Channels", ""])
def test_what_is_no_connection(text: str) -> None:
    assert parse_connection(text) is None


def test_members_of_communicators() -> None:
    new = parse_member(
        "ncclCommInitRankConfig comm 0x8ec rank 6 nranks 16 cudaDev 1 nvmlDev 5 busId c8000 commId 0x49b - Init START"
    )
    assert new is not None
    assert (new.rank, new.ranks, new.device, new.communicator) == (6, 16, "1", "0x49b")
    assert new.device_names == {"1", "5", "c8000"}
    old = parse_member("comm 0x7fd rank 15 nranks 16 cudaDev 7 busId e7000 - Init COMPLETE")
    assert old is not None
    assert (old.rank, old.ranks, old.communicator, old.split_of) == (15, 16, None, None)
    split = parse_member(
        "ncclCommSplit comm 0x9 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 parent 0x8 splitCount 1 color 7 key 0- "
        "Init START"
    )
    assert split is not None
    assert split.split_of == ("0x8", "1", "7")
    assert parse_member("comm 0x7fd rank x nranks 16 - Init COMPLETE") is None
    assert parse_member("comm 0x7fd rank 1234567890 nranks 16 - Init COMPLETE") is None


def test_choices_by_number_and_by_name() -> None:
    assert parse_choice("4 Bytes -> Algo 0 proto 0 time 25.2") == (Choice(None, "Tree", "LL"), 4)
    assert parse_choice("AllGather: 37 Bytes -> Algo 1 proto 2 time 2.8") == (Choice("AllGather", "Ring", "Simple"), 37)
    named = parse_choice("AllReduce:   4096 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}")
    assert named == (Choice("AllReduce", "Ring", "LL128"), 4096)
    assert parse_choice("1 Bytes -> Algo NVLS_TREE proto SIMPLE") == (Choice(None, "NVLSTree", "Simple"), 1)
    assert parse_choice("1 Bytes -> Algo 99 proto 7") == (Choice(None, "99", "7"), 1)


def test_variables_networks_versions_and_shapes() -> None:
    assert parse_variable("NCCL_IB_DISABLE set by environment to 1.") == ("NCCL_IB_DISABLE", "1")
    assert parse_variable("NCCL_SOCKET_IFNAME set by environment to eth0") == ("NCCL_SOCKET_IFNAME", "eth0")
    assert parse_variable("NCCL_IB_HCA set to mlx5_0") == ("NCCL_IB_HCA", "mlx5_0")
    assert parse_variable("P2P Chunksize set to 131072") is None
    assert parse_network("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>") == (
        "IB",
        "mlx5_0 (IB), mlx5_1 (RoCE)",
    )
    assert parse_network("NET/Socket : Using [0]eth0:192.168.29.197<0>") == ("Socket", "eth0")
    assert parse_network("NET/IB : No device found.") is None
    assert parse_versions("NCCL version 2.21.5+cuda12.4") == [("NCCL", "2.21.5+cuda12.4")]
    assert parse_versions("RCCL version : 2.27.7-HEAD:0d2c4fd") == [("RCCL", "2.27.7-HEAD:0d2c4fd")]
    assert parse_versions("HIP version  : 7.2.26015-fc0010cf6a") == [("HIP", "7.2.26015-fc0010cf6a")]
    assert parse_versions("cudaDriverVersion 12040") == [("CUDA driver", "12.4")]
    assert parse_versions("NET/Plugin: Using internal network plugin.") == [("network plug-in", "internal")]
    assert parse_versions("Using network AWS Libfabric") == [("network", "AWS Libfabric")]
    assert parse_versions("NCCL version unknown") == []
    channels = "24 coll channels, 8 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer"
    assert parse_shape(channels) == {"coll_channels": 24, "nvls_channels": 16, "p2p_channels": 32}
    assert parse_shape("Channel 00/08 :    0   1   2") == {"rings": 8}
    assert parse_shape("Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->7") == {"trees": 2}


def test_hostile_messages_take_little_time() -> None:
    begin = time.process_time()
    parsers = (parse_connection, parse_member, parse_choice, parse_variable, parse_network, parse_versions, parse_shape)
    texts = ["Channel 0 : " + "1" * 16000, "Trees [" + "[0] 1" * 4000, "NET/IB : Using " + "[0]a" * 4000, "1 " * 8000]
    texts += ["NCCL_" + "A" * 16000, "NCCL version " + "1" * 16000, "comm 0x1 rank " * 1000, "9" * 16000 + " Bytes"]
    for text in texts:
        for parser in parsers:
            for _ in range(20):
                parser(text)
    assert time.process_time() - begin < 2
