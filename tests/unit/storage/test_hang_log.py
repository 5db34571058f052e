from pathlib import Path

import pytest

from perfkit.cli.recording.run import print_end
from perfkit.errors import StoreError
from perfkit.records.hang import NoticedHang
from perfkit.report.wording.findings import word_all
from perfkit.storage.hang_log import HANGS_NAME, add_hang, observe_hangs, read_hangs


def hang(step: int) -> NoticedHang:
    at = f"2026-11-27T13:54:{step:02}+00:00"
    return NoticedHang(noticed_at=at, step=step, idle_ns=2 * 10**9, ranks=[0], headline="rank 1 waits for rank 0")


def test_hangs_are_kept_in_order(tmp_path: Path) -> None:
    assert read_hangs(tmp_path) == []
    for step in (3, 7):
        add_hang(tmp_path, hang(step))
    assert read_hangs(tmp_path) == [hang(3), hang(7)]


def test_each_is_one_line_of_the_report(tmp_path: Path) -> None:
    assert list(observe_hangs(tmp_path)) == []
    add_hang(tmp_path, hang(3))
    (found,) = word_all(observe_hangs(tmp_path))
    assert (found.code, found.severity) == ("run_hung", "warning")
    assert (
        found.message == "rank 0 held up step 3 for more than 2.00 s, 2026-11-27 13:54:03 UTC: rank 1 waits for rank 0"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "is not a list of hangs"),
        ('{"schema_version": 9, "hangs": []}', "has version 9"),
        ('{"hangs": [1]}', "not"),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / HANGS_NAME).write_text(content)
    with pytest.raises(StoreError, match=why):
        read_hangs(tmp_path)
    (found,) = word_all(observe_hangs(tmp_path))
    assert found.code == "hangs_unread"
    assert why in found.message


def test_a_run_whose_answer_is_not_printed_says_its_hangs_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_end(tmp_path, with_answer=False)
    assert capsys.readouterr().out.count("\n") == 1
    add_hang(tmp_path, hang(3))
    print_end(tmp_path, with_answer=False)
    done, said = capsys.readouterr().out.splitlines()
    assert "perfkit analyze" in done
    assert said.startswith("rank 0 held up step 3 for more than 2.00 s, 2026-11-27 13:54:03 UTC: ")
