"""Files that were made to break a reader, and files with random damage: an answer, or one line."""

import random
from pathlib import Path

import pytest

from tests import fuzz_files

KEPT = sorted(fuzz_files.HOSTILE.iterdir())
MUTATIONS = 2_000


@pytest.mark.parametrize("path", KEPT, ids=[path.name for path in KEPT])
def test_what_once_broke_a_reader_is_an_answer_or_one_line(tmp_path: Path, path: Path) -> None:
    fuzz_files.check(path.name.partition(".")[0], path.read_bytes(), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", fuzz_files.TARGETS)
def test_random_damage_is_an_answer_or_one_line(tmp_path: Path, target: str) -> None:
    chance = random.Random(target)  # noqa: S311
    accepted = [fuzz_files.check(target, fuzz_files.damaged(target, chance), tmp_path) for _ in range(MUTATIONS)]
    assert any(accepted)
