"""Decode JSON that may come from anybody, with the messages of validators in the words of perfkit's own."""

import re
from typing import Final, TypeVar

_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
_BOUNDS: Final = {">=": "of at least", ">": "above", "<=": "of at most", "<": "below"}
_MSGSPEC: Final = re.compile(
    r"Expected `(?P<type>\w+)(?: \| null)?`(?: (?P<sign>[<>]=?) (?P<limit>[-\d.e+]+))?(?:, got `(?P<got>\w+)`)?"
    r"(?: - at `\$\.?(?P<where>[^`]*)`)?"
)
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`.*")
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(?P<name>[^`]*)`(?: - at `\$\.?(?P<where>[^`]*)`)?")
_PYDANTIC: Final = (
    (re.compile(r"Input should be a valid integer(, .*string as an integer)?"), "expected a whole number"),
    (re.compile(r"Input should be a valid number(, .*string as a number)?"), "expected a number"),
    (re.compile(r"Input should be greater than or equal to "), "expected at least "),
    (re.compile(r"Input should be less than or equal to "), "expected at most "),
    (re.compile(r"Input should be greater than "), "expected more than "),
    (re.compile(r"Input should be less than "), "expected less than "),
    (re.compile(r"(Value|Assertion) error, "), ""),
)


def plain_message(message: str) -> str:
    """Return a validator's message in plain words; one that is not known is returned as it is."""
    if unknown := _UNKNOWN_FIELD.fullmatch(message):
        return f"there is no {unknown['name']}"
    if missing := _MISSING_FIELD.fullmatch(message):
        where = f"{missing['where']}: " if missing["where"] else ""
        return f"{where}{missing['name']} is missing"
    if (found := _MSGSPEC.fullmatch(message)) and found["type"] in _TYPES:
        where = f"{found['where']}: " if found["where"] else ""
        limit = f" {_BOUNDS[found['sign']]} {found['limit']}" if found["sign"] else ""
        got = f", not {_TYPES[found['got']]}" if found["got"] in _TYPES else ""
        return f"{where}expected {_TYPES[found['type']]}{limit}{got}"
    for pattern, words in _PYDANTIC:
        message = pattern.sub(words, message)
    return message


def encodable(text: str) -> str:
    """Return text from outside without lone surrogates, which cannot be written anywhere: each becomes `?`.

    JSON decoders of Python, pickles and names in damaged traces let them through; every such text passes here.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


T = TypeVar("T")


def decode_json(data: bytes, record: type[T]) -> T:
    """Decode JSON into a record.

    Raises:
        msgspec.DecodeError: It is not JSON, not of this type, or nested too deeply.
    """
    import msgspec  # `perfkit --help` does without

    try:
        return msgspec.json.decode(data, type=record)
    except (RecursionError, UnicodeDecodeError, MemoryError) as error:
        raise msgspec.DecodeError(str(error) or type(error).__name__) from error
