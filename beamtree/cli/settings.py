"""beamtree settings: every setting with its meaning, and its value under a preset."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from beamtree.cli.console import results
from beamtree.config import SECTION_TYPES, Config, PresetName


def settings(
    preset: Annotated[PresetName, typer.Option(help="The preset whose values to show.")] = "default",
) -> None:
    """List all settings for TOML files and --set, with their values under a preset."""
    values = Config.preset(preset).model_dump(mode="json")
    table = Table(title=f"Settings under the preset {preset}", title_justify="left", title_style="bold")
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("meaning", overflow="fold")
    for section, section_type in SECTION_TYPES.items():
        for name, field in section_type.model_fields.items():
            table.add_row(f"{section}.{name}", escape(str(values[section][name])), field.description or "")
        table.add_section()
    results.print(table)
