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
    NoReturn,
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
    return _reader(shape)(value, place)


def fields_of(shape: type) -> list[str]:
    """Names of a TypedDict's or dataclass's fields."""
    return _names(shape)


def object_fields(shape: type, name: str) -> list[str]:
    """Names of the fields of a field that is an object, or first of all an object; empty for any other."""
    hint = next(field.shape for field in _fields(shape) if field.name == name)
    first = get_args(hint)[0] if get_origin(hint) in (Union, UnionType) else hint
    return fields_of(first) if _is_object(first) else []


# Place of a value: its path, or the place of what it is in and its name or number there. Most are never spelt out.
Place = str | tuple[Any, object]
Reader = Callable[[object, Place], Any]
_NAME = object()  # stands for "a name in", where the name itself is wrong


@cache
def _reader(shape: Any) -> Reader:
    """The function that reads values of a shape: an answer has thousands of values of few shapes."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _limited(_reader(arguments[0]), arguments[1:])
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is Literal:
        is_choice = _kind(shape)
        return lambda value, place: value if is_choice(value) else _refuse(value, _name(shape), place)
    if origin in LISTS:
        return _list(_reader(arguments[0]), origin is tuple)
    if origin in MAPPINGS:
        return _mapping(*map(_reader, arguments))
    return _object(shape) if _is_object(shape) else SCALARS[shape]


def _limited(read_value: Reader, limits: Sequence[Between | Parsed]) -> Reader:
    def read_limited(value: object, place: Place) -> Any:
        result = read_value(value, place)
        for limit in limits:
            if not limit.fits(result):
                _refuse(result, limit.name, place)
        return result

    return read_limited


def _union(members: tuple[Any, ...]) -> Reader:
    """Reads the member that a value is meant to be; of several objects the one with its names, or the first."""
    readers = [(_kind(member), member, _reader(member)) for member in members]
    optional = NoneType in members

    def read_union(value: object, place: Place) -> Any:
        if value is None and optional:
            return None
        fitting = [(member, read_member) for is_kind, member, read_member in readers if is_kind(value)]
        if not fitting:
            _refuse(value, " or ".join(map(_name, members)), place)
        if len(fitting) > 1:
            fitting = [pair for pair in fitting if _has_names(value, pair[0])] or fitting
        return fitting[0][1](value, place)

    return read_union


def _list(read_item: Reader, as_tuple: bool) -> Reader:
    def read_list(value: object, place: Place) -> Any:
        items = [read_item(item, (place, number)) for number, item in enumerate(_of_type(value, list, "a list", place))]
        return tuple(items) if as_tuple else items

    return read_list


def _mapping(read_name: Reader, read_value: Reader) -> Reader:
    def read_mapping(value: object, place: Place) -> Any:
        pairs = _of_type(value, dict, "an object", place)
        return {read_name(n, (place, _NAME)): read_value(v, (place, n)) for n, v in pairs.items()}

    return read_mapping


def _object(shape: Any) -> Reader:
    """Reads the fields of a TypedDict or dataclass, which may have such objects in themselves."""
    build: Callable[..., Any] = dict if is_typeddict(shape) else shape
    required = [field.name for field in _fields(shape) if field.required]

    def read_object(value: object, place: Place) -> Any:
        pairs, shapes = _of_type(value, dict, "an object", place), _shapes(shape)
        fields = {n: _reader(s)(pairs[n], (place, n)) for n, s in shapes.items() if n in pairs}
        missing = next((name for name in required if name not in pairs), None)
        if missing is not None:
            raise Misfit(f"{_path(_spelt(place), missing)} is missing")
        if len(fields) < len(pairs):
            unknown = next(name for name in pairs if name not in fields)
            path = _path(_spelt(place), unknown)
            raise Misfit(f"{path} is {_shown(pairs[unknown])}, and no such name is known")
        return build(**fields)

    return read_object


@cache
def _kind(shape: Any) -> Callable[[object], bool]:
    """The function that is True for values of the kind of a shape, whose content may be wrong."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return lambda value: any(value == choice and type(value) is type(choice) for choice in arguments)
    if _is_object(shape) or origin in MAPPINGS:
        return lambda value: isinstance(value, dict)
    if origin in LISTS:
        return lambda value: isinstance(value, list)
    return lambda value: type(value) in (int, float) if shape is float else type(value) is shape


def _has_names(value: object, shape: Any) -> bool:
    if not _is_object(shape) or not isinstance(value, dict):
        return True
    return {field.name for field in _fields(shape) if field.required} <= value.keys() <= set(_names(shape))


def _is_object(shape: Any) -> bool:
    return is_typeddict(shape) or dataclasses.is_dataclass(shape)


def _names(shape: Any) -> list[str]:
    return [field.name for field in _fields(shape)]


@cache
def _shapes(shape: Any) -> dict[str, Any]:
    return {field.name: field.shape for field in _fields(shape)}


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


def _text(value: object, place: Place) -> object:
    return _of_type(value, str, NAMES[str], place)


def _whole(value: object, place: Place) -> object:
    if type(value) is not int or not INT64.fits(value):
        _refuse(value, NAMES[int], place)
    return value


def _number(value: object, place: Place) -> object:
    if type(value) is int:
        return _whole(value, place)
    if type(value) is not float or not math.isfinite(value):
        _refuse(value, NAMES[float], place)
    return value


def _anything(value: object, place: Place) -> object:
    return value


def _truth(value: object, place: Place) -> object:
    return _of_type(value, bool, NAMES[bool], place)


def _null(value: object, place: Place) -> object:
    return _of_type(value, NoneType, NAMES[NoneType], place)


SCALARS: Mapping[Any, Reader] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    NoneType: _null,
    object: _anything,
    Any: _anything,
}


def _of_type(value: object, of: type[T], name: str, place: Place) -> T:
    if not isinstance(value, of):
        _refuse(value, name, place)
    return value


def _name(shape: Any) -> str:
    origin = get_origin(shape)
    if origin is Annotated:
        return _name(get_args(shape)[0])
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(shape)))
    return "a list" if origin in LISTS else NAMES.get(shape, "an object")


def _refuse(value: object, expected: str, place: Place) -> NoReturn:
    raise Misfit(f"{_spelt(place) or 'it'} is {_shown(value)}, not {expected}")


def _spelt(place: Place) -> str:
    """A place as people read it: "facts.gpu.gpus[3].model"."""
    if isinstance(place, str):
        return place
    parent, name = _spelt(place[0]), place[1]
    if name is _NAME:
        return f"a name in {parent}"
    return f"{parent}[{name}]" if isinstance(name, int) else _path(parent, name)


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, int) and not INT64.fits(value):
        return "a number of more than 64 bits"
    return printable(_SHORT.repr(value))


def _path(place: str, name: object) -> str:
    shown = printable(str(name)[:MOST_SHOWN])
    return f"{place}.{shown}" if place else shown
