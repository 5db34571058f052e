"""Which calls of `torch.save` write a checkpoint."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec
import torch

from perfkit.record.recording.pause_log import OpenPause
from perfkit.record.script.hooks.script_pauses import _around_save


def test_the_line_that_writes_a_checkpoint_is_noted_whatever_its_file_is_called(tmp_path: Path) -> None:
    pause = OpenPause()
    names = {"save": _around_save(torch.save, lambda: nullcontext(pause)), "path": tmp_path / "a"}
    exec(compile("\nsave([1], path)", "/data/b\udcffd.py", "exec"), names)  # noqa: S102
    assert msgspec.json.encode(pause.caller) == rb'"b\\udcffd.py:2 <module>"'


def test_only_a_file_is_a_checkpoint(tmp_path: Path) -> None:
    noted: list[OpenPause] = []

    @contextmanager
    def pause() -> Iterator[OpenPause]:
        noted.append(OpenPause())
        yield noted[-1]

    save = _around_save(torch.save, pause)
    memory = io.BytesIO()
    save([1], memory)
    assert torch.load(io.BytesIO(memory.getvalue())) == [1]
    assert noted == []
    save([1], tmp_path / "a")
    save([1], str(tmp_path / "b"))
    with (tmp_path / "c").open("wb") as file:
        save([1], file)
    assert [one.bytes for one in noted] == [(tmp_path / name).stat().st_size for name in "abc"]
