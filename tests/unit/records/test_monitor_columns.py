"""The manual lists the columns of the step log as they are."""

from pathlib import Path

from perfkit.records.monitor import COLUMNS, HEADER_BYTES

PAGE = Path(__file__).parents[3] / "docs" / "monitor.md"


def test_the_table_of_the_manual_has_every_column() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.partition("## The file")[2].splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{column.name}` | `{column.dtype}` | {column.unit} | {column.meaning} | "
        f"{'' if column.unknown == 'never' else column.unknown} | {column.rolled_up} |"
        for column in COLUMNS
    ]
    assert f"{HEADER_BYTES} bytes of JSON" in text
