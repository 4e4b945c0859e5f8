"""Reference pages made from the code: the command line, the HTTP interface, the settings."""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import typer

import beamtree
from beamtree.cli.main import app
from beamtree.config import SECTION_TYPES, Config, EncoderRecipe, NetworkSpec, TrainingSchedule, shown
from beamtree.config.specs import PUBLISHED_ENCODER, PUBLISHED_NETWORK, PUBLISHED_SCHEDULE, Spec

PRESETS = ("instant", "small", "default", "paper")
SPECS: dict[str, type[Spec]] = {
    "model.network": NetworkSpec,
    "training.schedule": TrainingSchedule,
    "estimator.recipe": EncoderRecipe,
}
PUBLISHED: dict[str, Spec] = {
    "model.network": PUBLISHED_NETWORK,
    "training.schedule": PUBLISHED_SCHEDULE,
    "estimator.recipe": PUBLISHED_ENCODER,
}
METHODS = ("get", "post", "put", "delete")


def cli_page() -> str:
    """Every command with its arguments and options."""
    group = typer.main.get_command(app)
    sections = [_command_section(path, command) for path, command in _commands("beamtree", group)]
    return "\n".join(["# Command line", "", "Made from the commands' own help texts.", "", *sections])


def settings_page() -> str:
    """Every setting with its meaning and its value under each preset."""
    values = {preset: Config.preset(preset) for preset in PRESETS}
    lines = [
        "# Settings",
        "",
        "For TOML files (`--config`), `--set section.key=value` and `Config`. Where one value is shown, all presets",
        "share it.",
        "",
    ]
    for section, section_type in SECTION_TYPES.items():
        lines += [f"## {section}", "", "| setting | value | meaning |", "| --- | --- | --- |"]
        for name, field in section_type.model_fields.items():
            found = {preset: _code(_shown(values[preset], section, name)) for preset in PRESETS}
            alike = len(set(found.values())) == 1
            shown = found["default"] if alike else "<br>".join(f"{preset} {value}" for preset, value in found.items())
            lines.append(f"| `{section}.{name}` | {shown} | {_cell(field.description or '')} |")
        lines.append("")
    for setting, spec in SPECS.items():
        lines += [f"## {setting}", "", _prose(spec.__doc__ or ""), "", "| field | default | published |"]
        lines += ["| --- | --- | --- |"]
        ours, published = (each.model_dump(mode="json") for each in (spec(), PUBLISHED[setting]))
        lines += [f"| `{setting}.{name}` | {_code(ours[name])} | {_code(published[name])} |" for name in ours]
        lines.append("")
    return "\n".join(lines)


def _shown(config: Config, section: str, name: str) -> object:
    value = shown(getattr(getattr(config, section), name))
    return list(value) if isinstance(value, tuple) else value


def http_page() -> str:
    """Every route of a running server, from its OpenAPI document."""
    document = _openapi()
    schemas = document["components"]["schemas"]
    plain = {name: schema for name, schema in schemas.items() if "properties" not in schema}
    document = _inlined(document, plain)
    lines = [
        "# HTTP",
        "",
        "Made from the OpenAPI document of a running server, which has it at `/openapi.json` and shows it at `/docs`.",
        "Ids have the type that they had in the log: texts here. [Serving](../serving.md) says how to run a server.",
        "",
    ]
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                lines += _route(f"{method.upper()} {path}", methods[method])
    lines += ["## Objects", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if "properties" in schema:
            lines += [f"### {name}", "", _prose(schema.get("description", "")), "", *_fields(schema)]
    return "\n".join(lines)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from _commands(f"{path} {name}", child)


def _command_section(path: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    named = " ".join(one.name.upper() for one in arguments)
    lines = [f"## {path}", "", f"    {path} {named} [OPTIONS]".replace("  [", " ["), "", _prose(command.help or ""), ""]
    rows = [(f"`{one.name.upper()}`", getattr(one, "help", "") or "") for one in arguments]
    rows += [(_option(one), getattr(one, "help", "") or "") for one in options]
    if rows:
        lines += ["| | |", "| --- | --- |", *(f"| {name} | {_cell(text)} |" for name, text in rows), ""]
    return "\n".join(lines)


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    default = getattr(option, "default", None)
    is_shown = default not in (None, False, (), []) and not callable(default)
    return names + (f"<br>default {_code(default)}" if is_shown else "")


def _route(name: str, route: Mapping[str, Any]) -> list[str]:
    lines = [f"## {name}", "", _prose(route.get("description") or route.get("summary", "")), ""]
    parameters = route.get("parameters", [])
    if parameters:
        lines += ["| parameter | type | |", "| --- | --- | --- |"]
        lines += [
            f"| `{one['name']}` ({one['in']}) | {_type(one['schema'])} | {_cell(one.get('description', ''))} |"
            for one in parameters
        ]
        lines.append("")
    for media in route.get("requestBody", {}).get("content", {}).values():
        lines += [f"Body: {_type(media['schema'])}", ""]
        examples = [media["example"]] if "example" in media else []
        examples += [one["value"] for one in media.get("examples", {}).values()]
        for example in examples:
            lines += ["```json", json.dumps(example, indent=2, ensure_ascii=False), "```", ""]
    answers = [
        f"| {status} | {_type(next(iter(answer.get('content', {}).values()), {}).get('schema', {}))} | "
        f"{_cell(answer.get('description', ''))} |"
        for status, answer in route["responses"].items()
    ]
    return [*lines, "| answer | type | |", "| --- | --- | --- |", *answers, ""]


def _fields(schema: Mapping[str, Any]) -> list[str]:
    required = set(schema.get("required", []))
    rows = []
    for name, field in schema["properties"].items():
        shown = f"`{name}`" if name in required else f"`{name}` (optional)"
        rows.append(f"| {shown} | {_type(field)} | {_cell(field.get('description', ''))} |")
    return ["| field | type | |", "| --- | --- | --- |", *rows, ""]


def _type(schema: Mapping[str, Any]) -> str:
    """A type in a few words, with a link where it has a section."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        return " or ".join(_code(value) for value in schema["enum"])
    if "const" in schema:
        return _code(schema["const"])
    return str(schema.get("type", "any"))


def _inlined(node: Any, schemas: Mapping[str, Any]) -> Any:
    """A document in which references to these schemas, which have no section of their own, are replaced by them."""
    if isinstance(node, dict):
        name = str(node.get("$ref", "")).rsplit("/", 1)[-1]
        return (
            _inlined(schemas[name], schemas) if name in schemas else {k: _inlined(v, schemas) for k, v in node.items()}
        )
    return [_inlined(one, schemas) for one in node] if isinstance(node, list) else node


def _openapi() -> dict[str, Any]:
    """The document of a real server with all its routes, on a model of a few counted items."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        rows = [(f"u{user}", f"i{(user + step) % 12}", step) for user in range(40) for step in range(10)]
        log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
        titles = pl.DataFrame({"item_id": [f"i{item}" for item in range(12)], "title": ["a title"] * 12})
        beamtree.DeepTreeRetriever(beamtree.Config.preset("instant")).fit(log, items=titles).save(model)
        command = [sys.executable, "-m", "beamtree", "serve", str(model), "--port", "0"]
        command += ["--events", str(Path(folder) / "events.sqlite")]
        environment = os.environ | {"BEAMTREE_ADMIN_TOKEN": "for-the-documentation"}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as server:
            try:
                with urllib.request.urlopen(f"{_address(server)}/openapi.json") as answer:
                    document: dict[str, Any] = json.load(answer)
                return document
            finally:
                server.terminate()


def _address(server: subprocess.Popen[str]) -> str:
    """Where a starting server listens, as soon as it says so."""
    said = []
    for line in server.stdout or ():
        said.append(line)
        if found := re.search(r"http://[\w.]+:\d+", line):
            return found[0]
    raise RuntimeError("the server did not start:\n" + "".join(said))


def _prose(text: str) -> str:
    """Help text with its paragraphs, without what Markdown would take for markup."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(paragraphs).replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"`{text}`"
