"""The reference of JSON files: the fields of every record, from the schema."""

from collections.abc import Iterator
from typing import Any

from perfkit.report.json_schema import RECORDS, schema


def reference() -> str:
    """Return the files, and then the fields of each record that they contain, as Markdown."""
    schemas = {name: schema(name) for name in RECORDS}
    records: dict[str, Any] = {}
    for description in schemas.values():
        records |= description["$defs"]
    return "\n".join([*_files(schemas), *(line for name in sorted(records) for line in _record(name, records[name]))])


def _files(schemas: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield from ("| `perfkit schema` | file | record |", "|---|---|---|")
    for name, description in schemas.items():
        record = description["$ref"].rpartition("/")[2]
        yield f"| `{name}` | {_cell(description['title'].partition(': ')[2])} | [{record}](#{record.lower()}) |"
    yield ""


def _record(name: str, record: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{_cell(record.get('description', ''))}\n"
    if "properties" not in record:
        yield f"One of {', '.join(f'`{value}`' for value in record.get('enum', []))}.\n" if "enum" in record else ""
        return
    yield from ("| field | type | |", "|---|---|---|")
    required = record.get("required", [])
    for field, value in record["properties"].items():
        kind = kind_of(value) + ("" if field in required else ", optional")
        yield f"| `{field}` | {kind} | {_cell(value.get('description', ''))} |"
    yield ""


def kind_of(value: dict[str, Any]) -> str:
    """Return the type of a field, with links to the records in it."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(map(kind_of, value["anyOf"]))
    if "enum" in value:
        return " or ".join(f"`{choice}`" for choice in value["enum"])
    kind = value.get("type", "any")
    if kind == "array":
        items = value.get("prefixItems") or ([value["items"]] if value.get("items") else [])
        return f"list of {', '.join(dict.fromkeys(map(kind_of, items))) or 'any'}"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"object of {kind_of(value['additionalProperties'])}"
    return str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
