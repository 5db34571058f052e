"""Ranks on two hosts, which are two network namespaces with a cable between them, and the cable pulled."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import (
    LIMIT_S,
    PYTHON,
    ROOT,
    TINY,
    alive,
    environment,
    wait_for_folder,
    wait_for_steps,
)

ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        pytest.skip("no `ip` (iproute2) on this system")
    if done.returncode != 0:
        pytest.skip(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Hosts:
    def __init__(self) -> None:
        self.names = [f"perfkit-{os.getpid()}-{rank}" for rank in range(2)]

    def connect(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "pk0", "netns", self.names[0], "type", "veth", "peer", "name", "pk1", "netns", self.names[1])
        for rank, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"{ADDRESSES[rank]}/24", "dev", f"pk{rank}")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", f"pk{rank}", "up")

    def pull_the_cable(self) -> None:
        ip("-n", self.names[0], "link", "set", "pk0", "down")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=LIMIT_S, check=False)

    def start(self, trace_dir: Path) -> list[subprocess.Popen[str]]:
        options = [
            *TINY["gpt"],
            "--schedule",
            "wait=1,warmup=1,active=2,repeat=2",
            "--steps",
            "5000",
            "--timeout",
            "20s",
        ]
        place = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        rendezvous = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29511"}  # the namespace has no other process
        return [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *PYTHON, "run", *options, "--trace-dir", str(trace_dir)],
                env=environment() | place | rendezvous | {"RANK": str(rank), "GROUP_RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            for rank, name in enumerate(self.names)
        ]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    found = Hosts()
    try:
        found.connect()
        yield found
    finally:
        found.remove()


def end(ranks: list[subprocess.Popen[str]]) -> list[str]:
    """Wait until all ranks have ended; return their error lines."""
    try:
        errors = "".join(rank.communicate(timeout=LIMIT_S)[1] for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert all(rank.returncode != 0 for rank in ranks)
    assert alive([rank.pid for rank in ranks]) == []
    return [line for line in errors.splitlines() if line.startswith("perfkit: error: ")]


@pytest.mark.slow  # waits half a minute for a host that does not answer
def test_a_peer_that_becomes_unreachable_is_named_and_ends_the_run(hosts: Hosts, tmp_path: Path) -> None:
    ranks = hosts.start(tmp_path)
    folder = wait_for_folder(tmp_path)
    wait_for_steps(ranks[0])  # it reports every tenth of its steps: both cycles are written, most steps are to come
    hosts.pull_the_cable()
    (line,) = end(ranks)
    assert "waited --timeout 20s for a collective in step" in line
    assert ("rank 0: " in line and "rank 1 did not join it" in line) or (
        "rank 1: " in line and "rank 0 did not join it" in line
    )
    manifest = read_manifest(folder)
    assert manifest.state == "failed"
    assert [(file.rank, file.cycle) for file in manifest.files if file.kind == "trace"] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]


@pytest.mark.slow  # waits half a minute for a host that does not answer
def test_a_peer_that_cannot_be_reached_is_named_before_anything_is_written(hosts: Hosts, tmp_path: Path) -> None:
    hosts.pull_the_cable()
    lines = end(hosts.start(tmp_path))  # each host reports: they cannot agree on one that does
    assert any(line.startswith("perfkit: error: rank 0: rank 1 of 2 has not started or is stuck") for line in lines)
    assert any(line.startswith("perfkit: error: rank 1: cannot reach rank 0's store at 10.213.77.1") for line in lines)
    assert list(tmp_path.iterdir()) == []
