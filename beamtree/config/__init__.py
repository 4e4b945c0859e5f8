"""All settings: declared, documented and checked in one place, before any work begins.

A `Config` is frozen. It starts from a preset, then takes a TOML file, then single `section.key=value` settings;
whatever is unknown, out of range or contradictory is reported in one message. The preset "default" is what the fields
declare, so `Config()` is the same; the other presets say where they differ from it.
"""

from beamtree.config.config import Config, Decisions
from beamtree.config.data_sections import ROW_ORDER, DataSettings, FeatureKind, LogSettings
from beamtree.config.presets import PRESETS, PresetName
from beamtree.config.sections import (
    MAX_EPOCHS,
    SECTION_TYPES,
    EncoderKind,
    EstimatorSettings,
    ModelSettings,
    PartName,
    RetrievalSettings,
    TrainingSettings,
    TreeSettings,
)
from beamtree.config.specs import PUBLISHED_NETWORK, EncoderRecipe, NetworkSpec, TrainingSchedule, shown

__all__ = [
    "MAX_EPOCHS",
    "PRESETS",
    "PUBLISHED_NETWORK",
    "ROW_ORDER",
    "SECTION_TYPES",
    "Config",
    "DataSettings",
    "Decisions",
    "EncoderKind",
    "EncoderRecipe",
    "EstimatorSettings",
    "FeatureKind",
    "LogSettings",
    "ModelSettings",
    "NetworkSpec",
    "PartName",
    "PresetName",
    "RetrievalSettings",
    "TrainingSchedule",
    "TrainingSettings",
    "TreeSettings",
    "shown",
]
