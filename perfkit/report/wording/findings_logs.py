"""Messages about logs of NCCL and oneCCL."""

from collections.abc import Sequence
from typing import Final

from perfkit.records.facts import Words

_SOCKET: Final = "NET/Socket"
_MOST_NAMED: Final = 4
"""Pairs, or versions, that a sentence names."""
_DISABLED: Final = {
    "NCCL_IB_DISABLE": "NCCL does not use InfiniBand or RoCE",
    "NCCL_P2P_DISABLE": "devices of one host do not access each other's memory",
    "NCCL_SHM_DISABLE": "devices of one host do not exchange data in shared memory",
}
_WHY_SOCKETS: Final = {
    "disabled": "; NCCL_IB_DISABLE is set",
    "no_infiniband": "; NCCL found no InfiniBand device",
    "": "",
}
End = tuple[int | None, int, str]
"""Rank, process and host of a device."""


def _over_sockets(slow: Sequence[Sequence[End]]) -> str:
    return f"{_named(slow, with_hosts=True)} on different hosts exchange data over sockets ({_SOCKET})"


def _shared_memory(host: str, shared: Sequence[Sequence[End]], direct: int) -> str:
    return (
        f"on {host}, {_named(shared, with_hosts=False)} exchange data in the host's shared memory (SHM), other "
        f"{_count(direct, 'pair')} directly between devices (P2P)"
    )


def _disabled(name: str, value: str, known: int, processes: int, one_host: bool) -> str:
    whose = f" in {known} of {_count(processes, 'process', 'processes')}" if known else ""
    where = "; the logs are of one host, so it may not matter" if one_host else ""
    return f"{name} is set to {value}{whose}: {_DISABLED[name]}{where}"


def _versions_differ(versions: Sequence[tuple[str, Sequence[int]]]) -> str:
    named = [
        f"{version} (rank {ranks[0]}{' and others' if len(ranks) > 1 else ''})"
        for version, ranks in versions[:_MOST_NAMED]
    ]
    return f"ranks of one communicator use different versions: {', '.join(named)}"


def _nccl_warnings(count: int, first: str, rank: int | None) -> str:
    who = f" by rank {rank}" if rank is not None else ""
    order = "the first in the logs" if count > 1 else "it was logged"
    return f"NCCL logged {_count(count, 'warning')}; {order}{who}: {first}"


def _named(pairs: Sequence[Sequence[End]], with_hosts: bool) -> str:
    """Return pairs in words: `ranks 12 and 13`, `2 pairs of ranks (0 and 8, 1 and 9)`."""
    words = [" and ".join(_name(*end, with_hosts) for end in pair) for pair in pairs[:_MOST_NAMED]]
    if len(pairs) == 1:
        return f"ranks {words[0]}"
    return f"{len(pairs)} pairs of ranks ({', '.join(words)}{', …' if len(pairs) > _MOST_NAMED else ''})"


def _name(rank: int | None, process: int, host: str, with_host: bool) -> str:
    if rank is None:
        return f"process {process} of {host}"
    return f"{rank} ({host})" if with_host else str(rank)


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def _one_ccl_sockets(providers: Sequence[str], others: Sequence[str]) -> str:
    some = f" (also logged: {', '.join(others)})" if others else ""
    return (
        f"oneCCL exchanges data between hosts over sockets: libfabric's provider is {' and '.join(providers)}{some}; "
        "FI_PROVIDER chooses another"
    )


LOGS: Final[Words] = {
    "nccl_some_sockets": lambda slow, others, transports: (
        f"{_over_sockets(slow)}, the other {_count(others, 'pair')} over {', '.join(transports)}"
    ),
    "nccl_some_sockets/unknown_ends": lambda slow, transports: (
        f"{_over_sockets(slow)}, while connections whose ends are unknown use {', '.join(transports)}"
    ),
    "nccl_only_sockets": lambda slow, why: f"{_over_sockets(slow)}: all that the logs show{_WHY_SOCKETS[why]}",
    "nccl_shared_memory": _shared_memory,
    "nccl_disabled": _disabled,
    "nccl_versions_differ": _versions_differ,
    "nccl_warnings": _nccl_warnings,
    "nccl_timeout": "a collective did not end in time, by torch's watchdog: {first}",
    "nccl_ranks_differ": (
        "the largest communicator in the NCCL logs has {logged} ranks, the run {world_size}: ranks that the logs name "
        "are those of the communicator"
    ),
    "one_ccl_sockets": _one_ccl_sockets,
    "one_ccl_pcie": "oneCCL found that devices are connected by PCIe, not by Xe Link: {text}",
    "one_ccl_warnings": "oneCCL warned {count:|once|{count:,} times}, most often: {first}",
    "one_ccl_errors": "oneCCL logged {count:|an error|{count:,} errors}, most often: {first}",
    "nccl_log_unread": "{error}",
    "nccl_log_unread/large": ("the NCCL logs in {folder} are large and were not read: give them with --comm-log"),
}
