"""All settings on one screen, and for programs."""

import json

import pytest

from beamtree.cli.settings import described_settings, settings_lines
from beamtree.config import PRESETS, Config, PresetName
from tests.cli.beamtree_command import Command


@pytest.mark.parametrize("preset", list(PRESETS))
def test_all_settings_fit_on_a_screen(preset: PresetName, beamtree: Command) -> None:
    lines = beamtree("settings", "--preset", preset).out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("preset", list(PRESETS))
def test_json_has_every_setting_with_what_programs_need(preset: PresetName, beamtree: Command) -> None:
    found = json.loads(beamtree("settings", "--json", "--preset", preset).out)
    assert found == described_settings(preset)
    by_name = {setting["name"]: setting for setting in found}
    config = Config.preset(preset)
    assert by_name["training.seed"]["type"] == "integer"
    assert by_name["training.seed"]["bounds"] == {"exclusiveMaximum": 2**32, "minimum": 0, "type": "integer"}
    assert by_name["model.history_length"]["type"] == "integer or null"
    assert by_name["tree.order"]["bounds"]["enum"] == ["auto", "random", "category", "clustering"]
    assert by_name["model.network"]["bounds"]["properties"]["dropout"]["exclusiveMaximum"] == 1.0
    assert by_name["training.rounds"]["value"] == config.training.rounds
    assert by_name["training.rounds"]["default"] == Config().training.rounds
    assert all(setting["description"] for setting in found)


def test_a_line_has_the_value_where_there_is_one(beamtree: Command) -> None:
    lines = settings_lines("paper")
    assert beamtree("settings", "--preset", "paper").out.splitlines() == lines
    told = {line.split()[0]: line for line in lines}
    assert told["training.schedule"].startswith("training.schedule = published ")
    assert told["training.max_instances"].startswith("training.max_instances = 8_000_000 ")
    assert told["data.split_seed"].startswith("data.split_seed   ")
    small = {line.split()[0]: line for line in settings_lines("small")}
    assert small["estimator.recipe"].startswith("estimator.recipe = validations=3 ")
