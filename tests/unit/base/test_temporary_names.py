"""What ended processes left in the temporary folder is removed, and nothing else."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perfkit.base.atomic_write import temporary_prefix

LEAVE = """
import os, sys, tempfile
from perfkit.base.atomic_write import temporary_prefix
folder = tempfile.mkdtemp(prefix=temporary_prefix("perfkit-test"))
open(os.path.join(folder, "file"), "w").close()
print(folder, flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="needs Linux's /proc")
def test_what_an_ended_process_left_is_removed(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", LEAVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    assert left.parent == folder
    assert temporary_prefix("perfkit-test").endswith(f"-{os.getpid()}-")
    assert left.exists()  # it runs
    process.communicate("")
    assert left.exists()
    temporary_prefix("perfkit-other")
    assert left.exists()
    temporary_prefix("perfkit-test")
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="needs Linux's /proc")
def test_nothing_of_another_place_or_kind_is_removed_and_no_link_followed(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    own = temporary_prefix("perfkit-test").removesuffix(f"{os.getpid()}-")
    elsewhere = own.replace(own.split(".")[1], "1-")
    names = [
        f"{own}9999999999-x",
        f"{elsewhere}{process.pid}-x",
        f"{own}{os.getppid()}-x",
        f"{own}x",
        f"a{own}{process.pid}-x",
        "perfkit-x",
    ]
    for name in names:
        (folder / name).mkdir()
    (folder / f"{own}{process.pid}-link").symlink_to(folder / "perfkit-x")
    temporary_prefix("perfkit-test")
    assert {path.name for path in folder.iterdir()} == {*names, f"{own}{process.pid}-link"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_nothing_of_another_user_is_removed(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    path = folder / (temporary_prefix("perfkit-test").removesuffix(f"{os.getpid()}-") + f"{process.pid}-x")
    path.mkdir()
    os.chown(path, 65534, 65534)
    temporary_prefix("perfkit-test")
    assert path.exists()
