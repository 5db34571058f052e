"""A disk that fills up with traces; it needs a file system of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, TINY, environment

OWN_DISK = ["unshare", "--user", "--map-root-user", "--mount"]
LIST = 'status=$?; ls -A "$0"/full >&2; "$1" -m perfkit analyze "$0"/full >&2; exit $status'


def on_a_disk_of(size: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && {{ "$@"; {LIST}; }}'
    return subprocess.run(
        [*OWN_DISK, "bash", "-c", mount, str(folder), *command],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * LIMIT_S,
        cwd=ROOT,
    )


@pytest.mark.slow  # records until a disk is full; unit tests fill a disk with data sets
def test_a_disk_that_fills_up_with_traces(tmp_path: Path) -> None:
    if sys.platform != "linux" or subprocess.run([*OWN_DISK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow mounting a file system")
    options = ["--schedule", "wait=1,warmup=1,active=3,repeat=60", "--steps", "240", "-n", "2", "--name", "full"]
    done = on_a_disk_of("8m", tmp_path, *PYTHON, "run", *TINY["gpt"], *options, "--trace-dir", str(tmp_path))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    (error,) = [line for line in lines if line.startswith("perfkit: error")]
    assert "disk" in error or "No space left on device" in error
    assert "Traceback" not in done.stderr
    left = {line for line in lines if line.startswith((".", "rank"))}
    traces = [name for name in left if name.endswith(".json.gz")]
    assert "rank0.cycle0.json.gz" in traces
    assert [name for name in left if name.startswith(".")] == []  # no partial file
    assert "the run failed" in done.stderr  # from `perfkit analyze` of the finished cycles
