"""From configuration records to options of the command line, and from all their sources to one configuration.

A field `Annotated[int, Meta(ge=1, description="…")]` named `batch_size` becomes `--batch-size INTEGER RANGE` with its
help. What is not given on the command line does not count as given: defaults < preset < TOML file < command line.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
import msgspec
from click.core import ParameterSource
from msgspec import Struct, inspect

from perfkit.errors import UsageError

StructT = TypeVar("StructT", bound=Struct)
Choices = Mapping[str, Sequence[str]]

NOT_IN_A_FILE: Final = ("config",)
"""Options that make sense on the command line only."""


class Layer(NamedTuple):
    """Values from one source; later layers win."""

    origin: str
    """Empty for the command line, else what to say of it: `run.toml`, `preset tiny`."""
    values: Mapping[str, Any]


class Shape(NamedTuple):
    """What a field's type says, without its wrapping."""

    core: inspect.Type
    description: str
    optional: bool


def click_options(struct: type[Struct], choices: Choices) -> list[click.Option]:
    """Return one option a field of `struct`.

    Args:
        struct: Its fields are int, float, bool, str, Literal, a tuple of str, or any of these or None.
        choices: Allowed values of fields whose type does not tell them.
    """
    return [_option(field, choices) for field in msgspec.structs.fields(struct)]


def flag(name: str) -> str:
    """Return the flag of a field."""
    return "--" + name.replace("_", "-")


def given(context: click.Context) -> dict[str, Any]:
    """Return what was given on the command line, and nothing that was not."""
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def read_toml(path: Path) -> Layer:
    """Read options from a flat TOML file; keys are the options' names with `-` or `_`.

    Raises:
        UsageError: It cannot be read, is no TOML, or an option stands in it twice.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path}: no valid TOML: {error}") from error
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in values:
            raise UsageError(f"--config {path}: {key} is given twice")
        if name in NOT_IN_A_FILE:
            raise UsageError(f"--config {path}: {key} is an option of the command line only")
        values[name] = value
    return Layer(str(path), values)


def resolve(structs: Sequence[type[Struct]], layers: Sequence[Layer]) -> list[Struct]:
    """Make one record a type from layered values.

    Args:
        structs: Record types without a field in common.
        layers: Values by field name, weakest first; defaults are the types' own.

    Returns:
        The records, in the order of `structs`.

    Raises:
        UsageError: A key is unknown, a value is of a wrong type or out of range, or a combination cannot be.
    """
    fields = {field.name: field for struct in structs for field in msgspec.structs.fields(struct)}
    values: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.values.items():
            if name not in fields:
                raise UsageError(f"{layer.origin}: there is no option {name}; see --help for those there are")
            values[name] = _check(layer, fields[name], value)
    return [_make(struct, values) for struct in structs]


def _check(layer: Layer, field: msgspec.structs.FieldInfo, value: Any) -> Any:
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        where = f"{layer.origin}: {field.name}" if layer.origin else flag(field.name)
        raise UsageError(f"{where} = {value!r}: {error}") from error


def _make(struct: type[StructT], values: Mapping[str, Any]) -> StructT:
    own = {name: values[name] for name in struct.__struct_fields__ if name in values}
    try:
        return struct(**own)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _shape(field: msgspec.structs.FieldInfo) -> Shape:
    description = ""
    core: inspect.Type = inspect.type_info(field.type)
    optional = False
    while isinstance(core, (inspect.Metadata, inspect.UnionType)):
        if isinstance(core, inspect.Metadata):
            description = (core.extra_json_schema or {}).get("description", description)
            core = core.type
        else:
            optional = True
            core = next(t for t in core.types if not isinstance(t, inspect.NoneType))
    return Shape(core, description, optional)


def _option(field: msgspec.structs.FieldInfo, choices: Choices) -> click.Option:
    shape = _shape(field)
    options = [flag(field.name)]
    kind = _click_type(shape.core)
    if field.name in choices:
        kind = click.Choice(list(choices[field.name]))
    if kind is click.BOOL:
        options = [f"{options[0]}/--no-{options[0][2:]}"]
    return click.Option(
        [*options, field.name],
        type=kind,
        multiple=isinstance(shape.core, inspect.VarTupleType),
        help=_help(shape, field.default),
    )


def _help(shape: Shape, default: Any) -> str:
    text = shape.description[:1].upper() + shape.description[1:]
    text = text.rstrip(".")
    if default is None or default == () or "[" in text:
        return f"{text}."
    shown = {True: "on", False: "off"}.get(default, default) if isinstance(default, bool) else default
    return f"{text}.  [default: {shown}]"


def _click_type(core: inspect.Type) -> click.ParamType[Any]:
    match core:
        case inspect.BoolType():
            return click.BOOL
        case inspect.IntType():
            return _int_range(core)
        case inspect.FloatType():
            return _float_range(core)
        case inspect.LiteralType():
            return click.Choice([str(value) for value in core.values])
        case _:
            return click.STRING


def _int_range(core: inspect.IntType) -> click.ParamType[Any]:
    low = core.ge if core.gt is None else core.gt + 1
    high = core.le if core.lt is None else core.lt - 1
    return click.INT if low is None and high is None else click.IntRange(low, high)


def _float_range(core: inspect.FloatType) -> click.ParamType[Any]:
    low, high = core.ge if core.gt is None else core.gt, core.le if core.lt is None else core.lt
    if low is None and high is None:
        return click.FLOAT
    return click.FloatRange(low, high, min_open=core.gt is not None, max_open=core.lt is not None)
