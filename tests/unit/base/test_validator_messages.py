"""Messages of validators in plain words."""

from typing import Annotated, Any

import msgspec
import pytest

from perfkit.base.validation import plain_message


class Inner(msgspec.Struct):
    name: str


class Options(msgspec.Struct, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    share: Annotated[float, msgspec.Meta(gt=0, le=1.5)] = 1.0
    names: list[str] = []
    inner: list[Inner] = []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"count": 0}, "count: expected a whole number of at least 1"),
        ({"count": "x"}, "count: expected a whole number, not text"),
        ({"share": 0}, "share: expected a number above 0.0"),
        ({"share": 2}, "share: expected a number of at most 1.5"),
        ({"names": "x"}, "names: expected a list, not text"),
        ({"names": [3]}, "names[0]: expected text, not a whole number"),
        ({"other": 3}, "there is no other"),
        ({"inner": [{}]}, "inner[0]: name is missing"),
        ({"inner": [3]}, "inner[0]: expected an object, not a whole number"),
    ],
)
def test_messages_of_msgspec(value: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(value, Options)
    assert plain_message(str(raised.value)) == said


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "Invalid value for '--top': Input should be greater than or equal to 1",
            "Invalid value for '--top': expected at least 1",
        ),
        ("Input should be a valid integer, unable to parse string as an integer", "expected a whole number"),
        ("Value error, 'foo' is not one of 'run', 'commit'", "'foo' is not one of 'run', 'commit'"),
        ("something new", "something new"),
    ],
)
def test_messages_of_pydantic(message: str, said: str) -> None:
    assert plain_message(message) == said
