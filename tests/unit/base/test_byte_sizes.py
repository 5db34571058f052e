import pytest

from perfkit.base.parsing import parse_size
from perfkit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8), ("8B", 8), ("64K", 65536), ("64k", 65536), ("64KiB", 65536), ("64KB", 64000), ("4MB", 4_000_000)],
)
def test_a_size_is_read_in_powers_of_1024_or_in_decimal_units(text: str, expected: int) -> None:
    assert parse_size(text, "--max-size") == expected


@pytest.mark.parametrize("text", ["", "0", "-8", "8X", "1.5M", "999999T", "KB", "٣"])
def test_what_is_no_size_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(UsageError, match="--max-size"):
        parse_size(text, "--max-size")
