"""The parent of `perfkit run -n`: which of its ranks it reports as failed, and signals that it forwards."""

import signal
import subprocess

from perfkit.capture.lifecycle.local_launch import wait_for_ranks


def test_of_several_failures_one_by_a_signal_is_reported() -> None:
    ranks = [subprocess.Popen(["sh", "-c", how]) for how in ("exit 0", "exit 1", "kill -KILL $$", "exit 1")]
    for rank in ranks:
        rank.wait()
    assert wait_for_ranks(ranks, iter([])) == 2
    assert wait_for_ranks(ranks[:2], iter([])) == 1
    assert wait_for_ranks(ranks[:1], iter([])) is None


def test_a_signal_is_passed_on_to_every_rank() -> None:
    ranks = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    assert wait_for_ranks(ranks, iter([signal.SIGTERM])) is not None
    assert [rank.wait() for rank in ranks] == [-signal.SIGTERM] * 2
