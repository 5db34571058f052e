import pickle
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from perfkit.base.formatting import size
from perfkit.cli.data import app
from perfkit.errors import PerfkitError, StoreError, UsageError
from perfkit_workloads.data.text import load_text, prepare_text, write_bin

TEXT = "Straße, naïve 🚀\r\n" * 50


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT.encode())
    return path


def test_round_trip(file: Path, tmp_path: Path) -> None:
    prepare_text(file, tmp_path / "deep" / "out", 0.25)
    text = load_text(tmp_path / "deep" / "out")
    train, validation = text.train(), text.validation()
    assert text.decode(train) + text.decode(validation) == TEXT
    assert len(train) == int(len(TEXT) * 0.75)
    assert train.dtype == np.uint16
    assert sorted(set(TEXT)) == list(text.vocabulary.characters)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out"], "nothing temporary is left"


def test_the_split_and_its_files_are_those_of_nanogpt(tmp_path: Path) -> None:
    """Tiny Shakespeare has 1,115,394 characters: prepare.py of nanoGPT gives 1,003,854 and 111,540 tokens."""
    characters = "".join(map(chr, range(60, 125)))
    content = (characters * 17_161)[:1_115_394]
    (tmp_path / "t.txt").write_text(content)
    text, _ = prepare_text(tmp_path / "t.txt", tmp_path / "out", 0.1)
    assert (len(text.train()), len(text.validation())) == (1_003_854, 111_540)
    files = write_bin(text)
    assert [path.name for path in files] == ["train.bin", "val.bin", "meta.pkl"]
    meta = pickle.loads((tmp_path / "out" / "meta.pkl").read_bytes())  # noqa: S301  # as nanoGPT's sample.py reads it
    assert meta["vocab_size"] == len(meta["itos"]) == 65
    tokens = np.memmap(tmp_path / "out" / "val.bin", dtype=np.uint16, mode="r")
    assert "".join(meta["itos"][token] for token in tokens[:200].tolist()) == content[1_003_854:1_004_054]
    assert [meta["stoi"][one] for one in content[:5]] == [0, 1, 2, 3, 4]


def test_the_same_text_is_reused(file: Path, tmp_path: Path) -> None:
    first, reused = prepare_text(file, tmp_path / "out", 0.1)
    assert not reused
    before = (tmp_path / "out" / "train.npy").stat().st_mtime_ns
    second, reused = prepare_text(file, tmp_path / "out", 0.1)
    assert reused
    assert first.fingerprint == second.fingerprint
    assert (tmp_path / "out" / "train.npy").stat().st_mtime_ns == before


def test_an_empty_folder_is_used(file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert prepare_text(file, tmp_path / "out", 0.0)[0].vocabulary.validation_tokens == 0
    assert len(load_text(tmp_path / "out").validation()) == 0


def test_another_text_or_split_is_refused(file: Path, tmp_path: Path) -> None:
    prepare_text(file, tmp_path / "out", 0.1)
    with pytest.raises(StoreError, match="has another text or split"):
        prepare_text(file, tmp_path / "out", 0.2)
    file.write_text("something else")
    with pytest.raises(StoreError, match="has another text or split"):
        prepare_text(file, tmp_path / "out", 0.1)


def test_a_foreign_folder_is_refused_and_left_alone(file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train.npy").write_text("precious")
    with pytest.raises(StoreError, match="not a prepared text"):
        prepare_text(file, tmp_path / "out", 0.1)
    assert (tmp_path / "out" / "train.npy").read_text() == "precious"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"good \xff bad", "byte 0xff at offset 5"),
        (b"cut \xf0\x9f", "byte 0xf0 at offset 4"),
        (None, "cannot read the text .*No such file"),
    ],
)
def test_a_bad_text_is_one_clear_line(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        prepare_text(file, tmp_path / "out", 0.1)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_out_that_is_a_file_or_unwritable_is_one_clear_line(file: Path) -> None:
    for out in (file, file / "below", Path("/proc/nowhere/out")):
        with pytest.raises(StoreError, match="choose another --out") as caught:
            prepare_text(file, out, 0.1)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["train.npy", "validation.npy", "vocabulary.json"])
@pytest.mark.parametrize("damage", ["truncate", "remove", "replace"])
def test_a_damaged_folder_is_refused(name: str, damage: str, file: Path, tmp_path: Path) -> None:
    prepare_text(file, tmp_path / "out", 0.1)
    target = tmp_path / "out" / name
    content = target.read_bytes()
    target.unlink()
    if damage == "truncate":
        target.write_bytes(content[:-7])
    elif damage == "replace":
        target.write_bytes(b"something")
    with pytest.raises(StoreError) as caught:
        load_text(tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_another_version_is_refused(file: Path, tmp_path: Path) -> None:
    text, _ = prepare_text(file, tmp_path / "out", 0.1)
    newer = msgspec.structs.replace(text.vocabulary, schema_version=99)
    (tmp_path / "out" / "vocabulary.json").write_bytes(msgspec.json.encode(newer))
    with pytest.raises(StoreError, match="version 99"):
        load_text(tmp_path / "out")


def test_command_reports_in_one_line_what_was_written(file: Path, tmp_path: Path) -> None:
    arguments = ["prepare", "--text", str(file), "--out", str(tmp_path / "out"), "--validation", "0.5"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    half = len(TEXT) // 2
    written = sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert result.output == (
        f"Wrote {tmp_path / 'out'} ({size(written)}): {half:,} training and {half:,} validation characters, "
        f"{len(set(TEXT))} distinct\n"
    )
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert again.output.endswith("(there already)\n")


@pytest.mark.parametrize("arguments", [["prepare"], ["prepare", "--text", "x", "--out", "y", "--validation", "1"]])
def test_command_checks_its_options(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_command_leaves_errors_to_the_boundary(tmp_path: Path) -> None:
    with pytest.raises(PerfkitError, match="cannot read"):
        CliRunner().invoke(
            app,
            ["prepare", "--text", str(tmp_path / "none"), "--out", str(tmp_path / "out")],
            catch_exceptions=False,
        )
