"""Reading settings from files and assignments, and what is said of those that cannot be used."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from beamtree.config.section import Section
from beamtree.errors import SettingsError


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, section by section; what is in `over` wins."""
    merged = dict(base)
    for name, values in over.items():
        both_sections = isinstance(values, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = merge(merged[name], values) if both_sections else values
    return merged


def read_toml(file: Path) -> dict[str, Any]:
    """The sections of a settings file; SettingsError where it cannot be read."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"Cannot read the settings file {file}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}.") from error


def parse_assignment(assignment: str) -> dict[str, Any]:
    """`section.key=value` as a section with one setting; section.key.field=value sets a field of a table.

    A value that is no TOML is text.
    """
    key, separator, text = assignment.partition("=")
    names = key.strip().split(".")
    if not separator or len(names) < 2 or not all(names):
        raise SettingsError(f"--set takes section.key=value, such as training.epochs=5; got {assignment!r}.")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for name in reversed(names):
        value = {name: value}
    return dict(value)


def describe(fault: Any, *, section: str, section_type: type[Section]) -> str:
    """A fault that pydantic found in a section, as a sentence."""
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        fields = section_type.model_fields
        inner = [f"{name}.{each}" for name, field in fields.items() for each in _fields_of(field.annotation)]
        return unknown(key, known=fields, section=section, inner=inner)
    message = fault["msg"].removeprefix("Value error, ")
    return f"{section}.{key}: {message[0].lower()}{message[1:]}; got {fault['input']!r}"


def unknown(name: str, *, known: Iterable[str], section: str = "", inner: Iterable[str] = ()) -> str:
    """That there is no such name, and the likeliest one that there is; inner: names within a table."""
    prefix = f"{section}." if section else ""
    nearest = difflib.get_close_matches(name, [*known, *inner], n=1, cutoff=0.5)
    hint = f"did you mean {prefix}{nearest[0]}?" if nearest else f"known: {', '.join(known)}"
    return f"{prefix}{name} is unknown; {hint}"


def _fields_of(annotation: Any) -> Iterable[str]:
    return annotation.model_fields if isinstance(annotation, type) and issubclass(annotation, BaseModel) else ()
