"""Three hosts, which are network namespaces with a cable between every two, one of which is slow."""

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment

HOSTS = 3
SLOW = (0, 2)
SLOW_MBIT, USUAL_MBIT = 20, 100
_AS_HOST = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']


def configure(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        pytest.skip(f"no `{words[0]}` (iproute2) on this system")
    if done.returncode != 0:
        pytest.skip(f"{' '.join(words)}: {done.stderr.strip()}")


def address(host: int) -> str:
    return f"10.213.78.{host + 1}"


class Hosts:
    """Hosts with one address each, whichever cable it is reached by."""

    def __init__(self) -> None:
        self.names = [f"perfkit-{os.getpid()}-{host}" for host in range(HOSTS)]

    def connect(self) -> None:
        for name in self.names:
            configure("ip", "netns", "add", name)
            configure("ip", "-n", name, "link", "set", "lo", "up")
        for a, b in combinations(range(HOSTS), 2):
            ends = ["ip", "link", "add", f"pk{b}", "netns", self.names[a], "type", "veth"]
            configure(*ends, "peer", "name", f"pk{a}", "netns", self.names[b])
            for own, other in ((a, b), (b, a)):
                at = ["ip", "-n", self.names[own]]
                configure(*at, "addr", "add", f"{address(own)}/32", "peer", address(other), "dev", f"pk{other}")
                configure(*at, "link", "set", f"pk{other}", "up")

    def limit(self, a: int, b: int, mbit: int) -> None:
        """Let the cable between two hosts pass so many Mbit/s each way: no more after a pause, and without losses."""
        for own, other in ((a, b), (b, a)):
            bucket = ["tbf", "rate", f"{mbit}mbit", "burst", "4kb", "latency", "2s"]
            configure("tc", "-n", self.names[own], "qdisc", "add", "dev", f"pk{other}", "root", *bucket)

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=LIMIT_S, check=False)

    def run(self, *options: str) -> None:
        place = {"WORLD_SIZE": str(HOSTS), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        rendezvous = {"MASTER_ADDR": address(0), "MASTER_PORT": "29511"}  # the namespace has no other process
        ranks = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *_AS_HOST, f"node{rank}", *PYTHON, "collectives", *options],
                env=environment() | place | rendezvous | {"RANK": str(rank), "GROUP_RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
            )
            for rank, name in enumerate(self.names)
        ]
        try:
            assert [rank.wait(LIMIT_S) for rank in ranks] == [0] * HOSTS
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    found = Hosts()
    try:
        found.connect()
        yield found
    finally:
        found.remove()


@pytest.mark.slow  # three ranks, each on a host of its own
@pytest.mark.flaky(reruns=2)  # other programs on the machine change wall times
def test_a_pair_on_a_slow_cable_is_named_and_no_other(hosts: Hosts, tmp_path: Path) -> None:
    # The cables decide how long a message takes, and not the cores, which the three ranks share with other programs.
    mbit = {pair: SLOW_MBIT if pair == SLOW else USUAL_MBIT for pair in combinations(range(HOSTS), 2)}
    for pair, limit in mbit.items():
        hosts.limit(*pair, mbit=limit)
    file = tmp_path / "pairs.json"
    hosts.run("--pairs", "--max-size", "256K", "--repeats", "5", "--threads", "1", "-o", str(file))
    record = json.loads(file.read_text())
    assert record["hosts"] == ["node0", "node1", "node2"]
    bandwidths = {tuple(pair["ranks"]): pair["bandwidth"] * 8 / 1e6 for pair in record["pairs"]["pairs"]}
    assert bandwidths.keys() == mbit.keys()
    # Both ways at once: one after the other, a message has half of the cable.
    assert all(0.7 * mbit[pair] < bandwidth <= mbit[pair] for pair, bandwidth in bandwidths.items()), bandwidths
    named = [(link["kind"], link["ranks"]) for link in record["pairs"]["slow"] if link["measure"] == "bandwidth"]
    assert named == [("pair", list(SLOW))]
    codes = [finding["code"] for finding in record["findings"]]
    assert codes.count("slow_link") == len(record["pairs"]["slow"])
