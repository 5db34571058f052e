"""Token files: what other programs read, and what they cannot hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit.cli import main
from perfkit.cli.recording.run_options import parse_job
from perfkit.errors import StoreError, UsageError
from perfkit_workloads.base import Workload
from perfkit_workloads.data.text import load_text, prepare_text, write_bin
from tests.unit.workloads.conftest import make, make_source


def prepare(workload: Workload[Any], folder: Path) -> Path:
    source, options = make_source(source="bin", data_dir=str(folder))
    path = source.prepare(workload, workload.data_spec(0), options)
    assert path is not None
    return path


def test_the_file_is_what_nanogpt_maps(tmp_path: Path) -> None:
    workload = make("gpt", samples=50, block=20, vocab_size=60_000)
    tokens = np.memmap(prepare(workload, tmp_path), dtype=np.uint16, mode="r")
    wanted = workload.generate(workload.data_spec(0), 0, 50)["tokens"]
    assert tokens.tolist() == wanted.ravel().tolist()
    assert tokens.max() > 1 << 15, "more than a signed type holds"


def test_a_missing_stamp_is_found(tmp_path: Path) -> None:
    workload = make("gpt", samples=50, block=20)
    path = prepare(workload, tmp_path)
    path.with_name(f"{path.name}.json").unlink()
    with pytest.raises(StoreError, match="foreign"):
        prepare(workload, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["transformer"], "its field source is not"),
        (["classify"], "several fields"),
        (["gpt", "--vocab-size", "65537"], "up to 65,536; the vocabulary has 65,537"),
    ],
)
def test_other_samples_are_refused_before_the_start(arguments: list[str], message: str) -> None:
    assert parse_job(["gpt", "--source", "bin", "--vocab-size", "65536"]).data.source == "bin"
    with pytest.raises(UsageError, match=message):
        parse_job([*arguments, "--source", "bin"])


def test_a_text_is_also_written_as_token_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("hello world " * 20)
    prepare_command = ["data", "prepare", "--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / "out")]
    for _ in range(2):  # the second time the folder is there already
        assert main([*prepare_command, "--bin"]) == 0
        text = load_text(tmp_path / "out")
        for name, ids in (("train.bin", text.train()), ("val.bin", text.validation())):
            assert np.fromfile(tmp_path / "out" / name, np.uint16).tolist() == ids.tolist()
    assert "): token ids of 16 bits" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("train.npy", "validation.npy", "vocabulary.json", "train.bin", "val.bin", "meta.pkl")
    }


def test_a_text_with_too_many_characters_has_no_token_files(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(map(chr, (*range(32, 0xD800), *range(0xE000, 0x12000)))))
    text, _ = prepare_text(tmp_path / "text.txt", tmp_path / "out", 0.1)
    with pytest.raises(UsageError, match="up to 65,536 distinct characters"):
        write_bin(text)
