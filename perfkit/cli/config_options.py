"""Command-line options from configuration records, and records from layered values.

A field `Annotated[int, Meta(ge=1, description="…")]` named `batch_size` becomes `--batch-size <int>` with its help.
Precedence: defaults < preset < TOML file < command line.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import typer
from msgspec import Struct, inspect

from perfkit.base import regular_file
from perfkit.base.validation import plain_message
from perfkit.cli.help_screen import Common
from perfkit.cli.typer_app import App
from perfkit.errors import UsageError

StructT = TypeVar("StructT", bound=Struct)
Choices = Mapping[str, Sequence[str]]

NOT_IN_A_FILE: Final = ("config",)
"""Options that are allowed on the command line only."""

_BOUNDS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


class Layer(NamedTuple):
    """Values from one place; later layers win."""

    origin: str
    """Name for messages: `run.toml`, `preset tiny`; empty for the command line."""
    values: Mapping[str, Any]


def options(struct: type[Struct], section: str, choices: Choices) -> list[Parameter]:
    """Return one typer parameter per field of `struct`, inherited ones last; its value is None if it was not given.

    Args:
        struct: Its fields are int, float, bool, str, Path, Literal or a tuple of str; each may be optional.
        section: Group of the options whose declaration has none (`perfkit.options.help_groups`).
        choices: Allowed values by field, for fields whose type does not list them.
    """
    inherited = {name for base in struct.__bases__ for name in getattr(base, "__struct_fields__", ())}
    fields = sorted(msgspec.structs.fields(struct), key=lambda field: field.name in inherited)
    return [_option(field, section, choices.get(field.name)) for field in fields]


def parameter(name: str, kind: Any, described: Any = None, default: Any = None) -> Parameter:
    """Return a typer parameter that is not of a record: its value is None if it was not given.

    It is required if `default` is `Parameter.empty`; without `described`, `kind` is annotated.
    """
    annotation = kind if described is None else Annotated[kind, described]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def option(group: str, name: str, kind: Any, text: str, *names: str, default: Any = None, **settings: Any) -> Parameter:
    """Return a typer option that is not of a record, with its group and help; a switch has no opposite."""
    names = names or ((flag(name),) if kind is bool else ())
    return parameter(name, kind, typer.Option(*names, rich_help_panel=group, help=text, **settings), default)


def rank_option(default: str, least: int = 1) -> Parameter:
    """Return `-n`, of commands that start ranks; `default` says who starts them otherwise."""
    text = f"Start N ranks on this host [default: {default}]."
    return parameter(
        "ranks", int, typer.Option("-n", "--ranks", min=least, metavar="N", rich_help_panel=Common("Run"), help=text)
    )


def command(start: Callable[[Any, dict[str, Any]], None], parameters: Sequence[Parameter], text: str) -> typer.Typer:
    """Return an application with one command.

    Args:
        start: Called with the context's `obj` and the options that were given, by name.
        parameters: The options (see `options`).
        text: Description of the command in the help.
    """

    def callback(context: typer.Context, **values: Any) -> None:
        start(context.obj, {name: value for name, value in values.items() if value is not None})

    context, _ = signature(callback).parameters.values()
    callback.__signature__ = Signature([context, *parameters])  # type: ignore[attr-defined]  # typer reads it
    app = App()
    app.command(help=text)(callback)
    return app


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def read_toml(path: Path) -> Layer:
    """Read options from a flat TOML file; keys are the options' names with `-` or `_`.

    Raises:
        UsageError: It cannot be read, is not TOML, or contains an option twice.
    """
    values: dict[str, Any] = {}
    for key, value in regular_file.read_toml(path, "--config").items():
        name = key.replace("-", "_")
        if name in values:
            raise UsageError(f"--config {path}: {key} is given twice")
        if name in NOT_IN_A_FILE:
            raise UsageError(f"--config {path}: {key} is allowed on the command line only")
        values[name] = value
    return Layer(str(path), values)


def record(struct: type[StructT], given: Mapping[str, Any]) -> StructT:
    """Build a record from values of the command line.

    Raises:
        UsageError: A value is out of range, or a combination is invalid.
    """
    return make_record(struct, merge_layers([struct], [Layer("", given)]))


def merge_layers(structs: Sequence[type[Struct]], layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the value of every field that a layer sets; later layers win.

    Raises:
        UsageError: A key is not a field of any of `structs`, or a value has the wrong type or is out of range.
    """
    fields = {field.name: field for struct in structs for field in msgspec.structs.fields(struct)}
    values: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.values.items():
            if name not in fields:
                raise UsageError(f"{layer.origin}: there is no option {name}; see --help-all for the list")
            values[name] = _check(layer, fields[name], value)
    return values


def make_record(struct: type[StructT], values: Mapping[str, Any]) -> StructT:
    """Build a record from checked values; values of other fields are ignored.

    Raises:
        UsageError: A combination is invalid.
    """
    own = {name: values[name] for name in struct.__struct_fields__ if name in values}
    try:
        return struct(**own)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check(layer: Layer, field: msgspec.structs.FieldInfo, value: Any) -> Any:
    if isinstance(value, str) and not _is_unicode(value):
        raise UsageError(f"{flag(field.name)} {value}: is not UTF-8, and run.json could not record it")
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        where = f"{layer.origin}: {field.name}" if layer.origin else flag(field.name)
        raise UsageError(f"{where} = {value!r}: {plain_message(str(error))}") from error


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _option(field: msgspec.structs.FieldInfo, section: str, choices: Sequence[str] | None) -> Parameter:
    # The type without `Annotated` and `| None`.
    description, marks = "", dict[str, Any]()
    core: inspect.Type = inspect.type_info(field.type)
    while isinstance(core, (inspect.Metadata, inspect.UnionType)):
        if isinstance(core, inspect.Metadata):
            description = (core.extra_json_schema or {}).get("description", description)
            marks |= core.extra or {}
            core = core.type
        else:
            core = next(t for t in core.types if not isinstance(t, inspect.NoneType))
    group = marks.get("group", section)
    multiple = isinstance(core, inspect.VarTupleType)
    option = typer.Option(
        *marks.get("names", ()),
        help=_help(description, core, None if "names" in marks and field.default is False else field.default),
        metavar=marks.get("metavar", "<str>" if multiple else None),
        rich_help_panel=Common(group) if marks.get("common") else group,
    )
    kind = list[str] if multiple else Literal[*choices] if choices else _kind(core)
    return parameter(field.name, kind, option)


def _kind(core: inspect.Type) -> Any:
    match core:
        case inspect.BoolType():
            return bool
        case inspect.IntType():
            return int
        case inspect.FloatType():
            return float
        case inspect.LiteralType():
            return Literal[*core.values]
        case inspect.CustomType():
            return core.cls
        case _:
            return str


def _help(description: str, core: inspect.Type, default: Any) -> str:
    # Ranges are shown only: the record checks values from all layers.
    notes = [f"x{sign}{getattr(core, name)}" for name, sign in _BOUNDS.items() if getattr(core, name, None) is not None]
    if default is not None and default != () and "[" not in description:
        shown = {True: "on", False: "off"}[default] if isinstance(default, bool) else default
        notes.insert(0, f"default: {shown}")
    text = description[:1].upper() + description[1:].rstrip(".")
    return f"{text}.  [{'; '.join(notes)}]" if notes else f"{text}."
