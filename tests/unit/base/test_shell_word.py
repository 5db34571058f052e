"""Words of printed commands: a shell must read them as they were meant."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perfkit.base.formatting import shell_word

NAMES = [
    "plain",
    "a run",
    "it's",
    '$HOME `x` \\ "',
    "ключ",
    "a\nb",
    "\x1b[31mred'\\7",
    os.fsdecode(b"run\xff7"),
    os.fsdecode(b"\xe9t\xe9's"),
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_the_word_as_it_was(name: str) -> None:
    word = shell_word(Path(name))
    assert word.isprintable()
    read = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert read.stdout == os.fsencode(name)


def test_an_ordinary_path_is_left_as_it_is() -> None:
    assert shell_word("traces/my-run/rank0.json.gz") == "traces/my-run/rank0.json.gz"


def test_a_lone_surrogate_of_a_file_can_be_printed() -> None:
    assert shell_word("a\ud800") == "$'a\\355\\240\\200'"
