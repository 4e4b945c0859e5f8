"""Every error that beamtree raises on purpose.

    BeamtreeError
    ├── InputError               what a person handed over cannot be used
    │   ├── DataError            a log or an item table: file, row, value and remedy are in the message
    │   ├── SettingsError        settings that are unknown, out of range or contradict each other
    │   └── UnknownIdsError      ids that the model has never seen
    ├── ArtefactError            a saved model or checkpoint that is missing, damaged or of another version
    ├── DivergedError            training produced a loss that is not finite or runs away
    └── InterruptedTraining      training was asked to stop; a checkpoint is on disk

A message says what was expected, what arrived, and what to do about it.
"""


class BeamtreeError(Exception):
    """Base of all errors that beamtree raises on purpose."""


class InputError(BeamtreeError):
    """Something that a person handed over cannot be used."""


class DataError(InputError):
    """A log or an item table cannot be used as it is."""


class SettingsError(InputError):
    """Settings are unknown, out of range, or contradict each other."""


class UnknownIdsError(InputError):
    """Ids that the model has never seen."""


class ArtefactError(BeamtreeError):
    """A saved model or checkpoint is missing, damaged, or of another version."""


class DivergedError(BeamtreeError):
    """Training produced a loss that is not finite, or one that runs away."""


class InterruptedTraining(BeamtreeError):
    """Training stopped on request after writing a checkpoint."""
