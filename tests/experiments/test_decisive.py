"""Settings that a run does not depend on do not make it another one."""

import pytest

from beamtree.config import Config
from experiments.decisive import SECTIONS, decisive_settings
from experiments.systems import SYSTEMS


def decides(name: str, system: str) -> bool:
    return name in decisive_settings(Config().model_dump(), system=system)


def test_every_system_is_known() -> None:
    assert SECTIONS.keys() == SYSTEMS.keys()


@pytest.mark.parametrize(
    ("name", "systems"),
    [
        ("estimator.epochs", {"dtr-t-rl", "sasrec", "sasrec-item-to-item"}),
        ("tree.branching", {"dtr-u", "dtr-t", "dtr-t-rl"}),
        ("training.learning_rate", {"dtr-u", "dtr-t", "dtr-t-rl"}),
        ("model.windows", {"dtr-u", "dtr-t", "dtr-t-rl", "sasrec", "sasrec-item-to-item"}),
        ("data.protocol", set(SYSTEMS)),
        ("training.seed", set()),
    ],
)
def test_a_setting_decides_the_systems_that_read_it(name: str, systems: set[str]) -> None:
    assert {system for system in SYSTEMS if decides(name, system)} == systems
