"""JSON from other machines: parsed without surprises, and held against declared types before anything uses it.

A new field is checked by being declared. A shape is what annotations say: `int`, `str | None`, `list[X]`,
`tuple[X, ...]`, `Mapping[str, X]`, `Literal[...]`, a TypedDict, a dataclass, `Annotated[X, limit]` with a limit of
bounds.py, or `object` or `Any` for anything that is read later.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)

from ansible_collections.gpuctl.fleet.plugins.module_utils.gpuhost.bounds import INT64, Between, Parsed
from ansible_collections.gpuctl.fleet.plugins.plugin_utils.printable import printable

T = TypeVar("T")
MOST_SHOWN = 60  # characters of a wrong value in a message
NAMES: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}
LISTS, MAPPINGS = (list, tuple, Sequence), (dict, Mapping)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = MOST_SHOWN
_SHORT.maxlevel = 2


class Misfit(ValueError):
    """A value that is not of its declared type; the message names its place, the value and the type."""


class _Field(NamedTuple):
    name: str
    shape: Any
    required: bool


def parse(text: bytes | str) -> Any:
    """Parse JSON; `ValueError` for anything else, also for what would exhaust the parser."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@overload
def read(value: object, shape: type[T], place: str = "", *, extra: bool = False) -> T: ...
@overload
def read(value: object, shape: object, place: str = "", *, extra: bool = False) -> Any: ...
def read(value: object, shape: Any, place: str = "", *, extra: bool = False) -> Any:
    """Return the value as its type: dataclasses are built, everything else stays as JSON has it.

    `Misfit` for a value of another type at any depth, a missing or unknown name, and a number that is not finite or
    needs more than 64 bits. `extra`: names beyond the declared ones are allowed at the top, and left out.
    """
    if extra and isinstance(value, dict):
        known = set(fields_of(shape))
        value = {name: inner for name, inner in value.items() if name in known}
    return _read(value, shape, place)


def fields_of(shape: type) -> list[str]:
    """Names of a TypedDict's or dataclass's fields."""
    return _names(shape)


def object_fields(shape: type, name: str) -> list[str]:
    """Names of the fields of a field that is an object, or first of all an object; empty for any other."""
    hint = next(field.shape for field in _fields(shape) if field.name == name)
    first = get_args(hint)[0] if get_origin(hint) in (Union, UnionType) else hint
    return fields_of(first) if _is_object(first) else []


def _read(value: object, shape: Any, place: str) -> Any:
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _limited(_read(value, arguments[0], place), arguments[1:], place)
    if origin in (Union, UnionType):
        return _read(value, _member(value, arguments, place), place)
    if origin is Literal:
        if not _looks_like(value, shape):
            raise _misfit(value, _name(shape), place)
        return value
    if _is_object(shape) or origin in (*LISTS, *MAPPINGS):
        return _container(value, shape, place)
    return SCALARS[shape](value, place)


def _container(value: object, shape: Any, place: str) -> Any:
    origin, arguments = get_origin(shape), get_args(shape)
    if origin in LISTS:
        items = _of_type(value, list, "a list", place)
        read_items = [_read(item, arguments[0], f"{place}[{number}]") for number, item in enumerate(items)]
        return tuple(read_items) if origin is tuple else read_items
    pairs = _of_type(value, dict, "an object", place)
    if origin in MAPPINGS:
        return {
            _read(n, arguments[0], f"a name in {place}"): _read(v, arguments[1], _path(place, n))
            for n, v in pairs.items()
        }
    return _object(pairs, shape, place)


def _member(value: object, members: tuple[Any, ...], place: str) -> Any:
    """The member of a union that a value is meant to be; of several objects the one with its names, or the first."""
    fitting = [member for member in members if _looks_like(value, member)]
    if not fitting:
        raise _misfit(value, " or ".join(map(_name, members)), place)
    return next((member for member in fitting if _has_names(value, member)), fitting[0])


def _looks_like(value: object, shape: Any) -> bool:
    """True if a value is of the kind of the shape; its content may be wrong."""
    origin = get_origin(shape)
    if origin is Annotated:
        return _looks_like(value, get_args(shape)[0])
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(shape))
    if _is_object(shape) or origin in MAPPINGS:
        return isinstance(value, dict)
    if origin in LISTS:
        return isinstance(value, list)
    return type(value) in (int, float) if shape is float else type(value) is shape


def _has_names(value: object, shape: Any) -> bool:
    if not _is_object(shape) or not isinstance(value, dict):
        return True
    return {field.name for field in _fields(shape) if field.required} <= value.keys() <= set(_names(shape))


def _is_object(shape: Any) -> bool:
    return is_typeddict(shape) or dataclasses.is_dataclass(shape)


def _names(shape: Any) -> list[str]:
    return [field.name for field in _fields(shape)]


def _object(values: dict[str, object], shape: Any, place: str) -> Any:
    fields = _fields(shape)
    present = [field for field in fields if field.name in values]
    read_values = {field.name: _read(values[field.name], field.shape, _path(place, field.name)) for field in present}
    missing = next((field.name for field in fields if field.required and field.name not in values), None)
    if missing is not None:
        raise Misfit(f"{_path(place, missing)} is missing")
    unknown = [name for name in values if name not in read_values]
    if unknown:
        raise Misfit(f"{_path(place, unknown[0])} is {_shown(values[unknown[0]])}, and no such name is known")
    return read_values if is_typeddict(shape) else shape(**read_values)


@cache
def _fields(shape: Any) -> list[_Field]:
    hints = get_type_hints(shape, include_extras=True)
    if is_typeddict(shape):
        return [_Field(name, hint, name in shape.__required_keys__) for name, hint in hints.items()]
    nothing = dataclasses.MISSING
    return [
        _Field(field.name, hints[field.name], field.default is nothing and field.default_factory is nothing)
        for field in dataclasses.fields(shape)
    ]


def _limited(value: object, limits: Sequence[Between | Parsed], place: str) -> object:
    for limit in limits:
        if not limit.fits(value):
            raise _misfit(value, limit.name, place)
    return value


def _text(value: object, place: str) -> object:
    return _of_type(value, str, NAMES[str], place)


def _whole(value: object, place: str) -> object:
    if type(value) is not int or not INT64.fits(value):
        raise _misfit(value, NAMES[int], place)
    return value


def _number(value: object, place: str) -> object:
    if type(value) is int:
        return _whole(value, place)
    if type(value) is not float or not math.isfinite(value):
        raise _misfit(value, NAMES[float], place)
    return value


def _anything(value: object, place: str) -> object:
    return value


def _truth(value: object, place: str) -> object:
    return _of_type(value, bool, NAMES[bool], place)


def _null(value: object, place: str) -> object:
    return _of_type(value, NoneType, NAMES[NoneType], place)


SCALARS: Mapping[Any, Callable[[object, str], object]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    NoneType: _null,
    object: _anything,
    Any: _anything,
}


def _of_type(value: object, of: type[T], name: str, place: str) -> T:
    if not isinstance(value, of):
        raise _misfit(value, name, place)
    return value


def _name(shape: Any) -> str:
    origin = get_origin(shape)
    if origin is Annotated:
        return _name(get_args(shape)[0])
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(shape)))
    return "a list" if origin in LISTS else NAMES.get(shape, "an object")


def _misfit(value: object, expected: str, place: str) -> Misfit:
    return Misfit(f"{place or 'it'} is {_shown(value)}, not {expected}")


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, int) and not INT64.fits(value):
        return "a number of more than 64 bits"
    return printable(_SHORT.repr(value))


def _path(place: str, name: object) -> str:
    shown = printable(str(name)[:MOST_SHOWN])
    return f"{place}.{shown}" if place else shown
