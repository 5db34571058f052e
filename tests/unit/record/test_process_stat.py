"""Which processes have ended, as the operating system shows them."""

import os
import subprocess
import sys
import time

from perfkit.record.process_stat import STATE, has_ended, stat_fields


def test_a_process_that_runs_has_not_ended_and_one_that_nobody_has_waited_for_has() -> None:
    assert not has_ended(stat_fields(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        while stat_fields(process.pid)[STATE] != "Z":
            time.sleep(0.01)
        assert has_ended(stat_fields(process.pid))


def test_a_process_that_is_about_to_close_its_connections_has_ended() -> None:
    fields = stat_fields(os.getpid())
    fields[6] = str(int(fields[6]) | 0x4)
    assert has_ended(fields)
