"""A disk that fills up while writing: one clear line, no crash, nothing left. Needs a file system of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.launching import LIMIT_S

ROOT = Path(__file__).parents[3]

OWN_DISK = ["unshare", "--user", "--map-root-user", "--mount"]

FILL = """
import sys
from pathlib import Path
import perfkit_workloads.data.files as files
files._check_room = lambda path, spec: None  # others fill the disk after that
from perfkit.errors import StoreError
from tests.unit.workloads.conftest import make
from tests.unit.workloads.test_sources import prepare
try:
    prepare(make("transformer", samples=400, d_model=1024), sys.argv[1], Path(sys.argv[2]))
except StoreError as error:
    print(error)
"""


def on_a_disk_of(size: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && "$@" && ls -A "$0"'
    return subprocess.run(
        [*OWN_DISK, "bash", "-c", mount, str(folder), *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        cwd=ROOT,
    )


CI_ONLY = [pytest.param(layout, marks=pytest.mark.slow) for layout in ("hdf5-chunked", "hdf5-gzip", "safetensors")]
"""Each imports torch in a separate process."""


@pytest.mark.parametrize("layout", ["hdf5", *CI_ONLY])
def test_a_disk_that_fills_up_is_one_clear_line(layout: str, tmp_path: Path) -> None:
    if sys.platform != "linux" or on_a_disk_of("1m", tmp_path, "true").returncode != 0:
        pytest.skip("this system lets nobody mount a disk of their own")
    done = on_a_disk_of("12m", tmp_path, sys.executable, "-c", FILL, layout, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    message, *left = done.stdout.splitlines()
    assert message.startswith(f"cannot write {tmp_path}")
    assert "No space left on device" in message
    assert [Path(name).suffix for name in left] == [".lock"]
