"""`Config`: all sections together, checked before any work begins."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError

from beamtree.config.data_sections import DataSettings, LogSettings
from beamtree.config.loading import describe, merge, parse_assignment, read_toml, unknown
from beamtree.config.presets import PRESETS, PresetName
from beamtree.config.recorded import in_todays_names
from beamtree.config.section import Section, decided
from beamtree.config.sections import (
    SECTION_TYPES,
    EstimatorSettings,
    ModelSettings,
    RetrievalSettings,
    TrainingSettings,
    TreeSettings,
)
from beamtree.errors import SettingsError


class Decisions(Section):
    """What a fit found out about its log; no settings, but a model records them, to read its log the same way again.

    shuffle_ties: whether rows that share user and time are shuffled by the split's seed; history_length: how many of
    the latest items the encoder reads where `model.history_length` leaves it to the log.
    """

    shuffle_ties: bool | None = None
    history_length: int | None = Field(None, ge=1, le=10_000)


class Config(Section):
    """Everything that decides a fit, in sections."""

    log: LogSettings = LogSettings()
    data: DataSettings = DataSettings()
    tree: TreeSettings = TreeSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    estimator: EstimatorSettings = EstimatorSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    decided: Decisions = Decisions()

    def contradictions(self) -> list[str]:
        """Settings that need scores of attention on all levels, together with attention on the last ones."""
        levels, found = self.model.attention_levels, []
        if levels is not None and self.training.rounds > 1:
            found.append(
                f"training.rounds = {self.training.rounds} learns the tree by scores on all levels, "
                f"model.attention_levels = {levels} has them on the last ones: take one round, or leave the other out"
            )
        return found

    @property
    def split_seed(self) -> int:
        """The seed of the held-out users, and of the shuffling of tied rows."""
        return self.training.seed if self.data.split_seed is None else self.data.split_seed

    @property
    def encoder_history(self) -> int:
        """Number of latest items that the encoder reads; SettingsError before a setting or a log has decided it."""
        length = self.decided.history_length if self.model.history_length is None else self.model.history_length
        return decided(length, name="model.history_length", kind="a number of items")

    @classmethod
    def preset(cls, name: PresetName, **sections: Mapping[str, Any]) -> Self:
        """A named starting point; sections override it.

        instant: counted memory alone, seconds; small: minutes; default: under an hour for a million interactions on two
        cores; paper: the published sizes, method and schedule, 80,000 steps in each of 12 rounds.
        """
        if name not in PRESETS:
            raise SettingsError(f"There is no preset {name!r}. Choose one of: {', '.join(PRESETS)}.")
        return cls.resolve(merge(PRESETS[name], sections))

    @classmethod
    def load(
        cls,
        *,
        preset: PresetName = "default",
        file: Path | None = None,
        assignments: Iterable[str] = (),
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        """Preset, then a TOML file, then `section.key=value` assignments, then overrides; the later one wins."""
        if preset not in PRESETS:
            raise SettingsError(f"There is no preset {preset!r}. Choose one of: {', '.join(PRESETS)}.")
        given: dict[str, Any] = {} if file is None else read_toml(file)
        for assignment in assignments:
            given = merge(given, parse_assignment(assignment))
        if "decided" in given:
            raise SettingsError(unknown("decided", known=SECTION_TYPES))
        return cls.resolve(merge(merge(PRESETS[preset], given), overrides or {}))

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> Self:
        """Settings that a model recorded in full, maybe in an earlier format.

        That did not have all of today's settings, and it may have taken some together that are refused now.
        """
        return cls.resolve(in_todays_names(settings), refuse_contradictions=False)

    @classmethod
    def resolve(cls, raw: Mapping[str, Any], *, refuse_contradictions: bool = True) -> Self:
        """Check every section, then their combination; one SettingsError lists all faults."""
        faults: list[str] = []
        sections: dict[str, Section] = {}
        for name, values in raw.items():
            if name not in cls.model_fields:
                faults.append(unknown(name, known=SECTION_TYPES))
            elif not isinstance(values, Mapping):
                faults.append(f"{name} is a section of settings, not a value: write {name}.key=value")
            else:
                section_type = _TYPES[name]
                try:
                    sections[name] = section_type(**values)
                except ValidationError as error:
                    faults.extend(describe(fault, section=name, section_type=section_type) for fault in error.errors())
        if refuse_contradictions:
            for section in sections.values():
                faults.extend(section.contradictions())
            faults.extend(cls.model_validate(sections).contradictions())
        if faults:
            listing = "\n".join(f"  - {fault}" for fault in faults)
            raise SettingsError(f"{len(faults)} setting{'s' if len(faults) > 1 else ''} cannot be used:\n{listing}")
        return cls.model_validate(sections)


_TYPES: dict[str, type[Section]] = {**SECTION_TYPES, "decided": Decisions}
