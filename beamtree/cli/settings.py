"""beamtree settings: every setting with its meaning, and its value under a preset."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from beamtree.cli.console import results, show
from beamtree.config import SECTION_TYPES, Config, PresetName, shown

NAME_WIDTH = 34


def settings(
    preset: Annotated[PresetName, typer.Option(help="The preset whose values to show.")] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with types, defaults and bounds.")] = False,
) -> None:
    """List all settings for TOML files and --set, with their values under a preset."""
    if as_json:
        results.print_json(json.dumps(described_settings(preset)))
        return
    for line in settings_lines(preset):
        show(line)


def settings_lines(preset: PresetName) -> list[str]:
    """A line for each setting: its name, its value where the preset gives it one, and what it means."""
    config = Config.preset(preset)
    lines = []
    for section, section_type in SECTION_TYPES.items():
        for name, field in section_type.model_fields.items():
            value = _text(shown(getattr(getattr(config, section), name)))
            said = f"{section}.{name}" + (f" = {value}" if value else "")
            lines.append(f"{said:<{NAME_WIDTH}} {field.description}")
    return lines


def described_settings(preset: PresetName) -> list[dict[str, Any]]:
    """Every setting: its name, type, default, value under a preset, meaning, and bounds as JSON Schema writes them."""
    values, defaults = (config.model_dump(mode="json") for config in (Config.preset(preset), Config()))
    found: list[dict[str, Any]] = []
    for section, section_type in SECTION_TYPES.items():
        schema = section_type.model_json_schema()
        for name, field in section_type.model_fields.items():
            allowed = _allowed(schema["properties"][name], schema.get("$defs", {}))
            found.append(
                {
                    "name": f"{section}.{name}",
                    "type": _type(allowed),
                    "default": defaults[section][name],
                    "value": values[section][name],
                    "description": field.description,
                    "bounds": allowed,
                }
            )
    return found


def _allowed(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """What a value may be: a schema without titles, texts and defaults, and with definitions in place of references."""
    if isinstance(schema, list):
        return [_allowed(entry, definitions) for entry in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return _allowed(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    if "properties" in schema:
        fields = {name: _allowed(field, definitions) for name, field in schema["properties"].items()}
        return {"type": "object", "properties": fields}
    return {name: _allowed(inner, definitions) for name, inner in schema.items() if name not in _FOR_PEOPLE}


_FOR_PEOPLE = ("title", "description", "default")


def _type(allowed: Mapping[str, Any]) -> str:
    """The type in a word or two, such as "integer or null"."""
    kinds = [_type(kind) for kind in allowed["anyOf"]] if "anyOf" in allowed else [allowed.get("type", "string")]
    return " or ".join(dict.fromkeys(kinds))


def _text(value: Any) -> str:
    """A value on one short line; nothing where nothing is set."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
