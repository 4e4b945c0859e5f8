"""Every error that beamtree raises on purpose.

    BeamtreeError
    ├── InputError               an input that cannot be used
    │   ├── DataError            a log or an item table: file, row, value and remedy are in the message
    │   │   ├── NoRowsError      a log without rows, or one that the filters leave none of
    │   │   └── IdTypeError      texts where the ids are integers, or the reverse
    │   ├── BaselineUnavailable  a baseline without its library, or unsuitable for this data
    │   ├── FeatureError         features of a request that the model does not read, or of another type
    │   ├── FolderInUse          a model folder that another process is writing to
    │   ├── SettingsError        settings that are unknown, out of range or contradict each other
    │   └── UnknownIdsError      ids that the model has never seen
    │       ├── UnknownUsersError    users without a stored history
    │       └── ColdStartError       histories without any known item, where that is an error
    ├── ArtefactError            a saved model or checkpoint that is missing, damaged or of another version
    ├── ClusterError             workers of a cluster failed too often, or gave no answer
    ├── UpdateRefused            an update that would do worse than the model in use
    ├── DivergedError            training produced a loss that is not finite or runs away
    └── InterruptedTraining      training was asked to stop; a checkpoint is on disk

A message says what was expected, what arrived, and what to do about it.
"""

from collections.abc import Sequence


class BeamtreeError(Exception):
    """Base of all errors that beamtree raises on purpose."""


class InputError(BeamtreeError):
    """An input cannot be used."""


class DataError(InputError):
    """A log or an item table cannot be used as it is."""


class NoRowsError(DataError):
    """A log has no rows, or the filters leave none of them."""


class BaselineUnavailable(InputError):
    """A baseline lacks its library, or is unsuitable for this data."""


class FeatureError(InputError):
    """Features of a request that the model was not fitted with, or values of another type."""


class FolderInUse(InputError):
    """Another process is writing to the folder of a model."""


class SettingsError(InputError):
    """Settings are unknown, out of range, or contradict each other."""


class IdTypeError(DataError):
    """An id of the other kind: a text where the ids are integers, or the reverse. id: the first such one."""

    def __init__(self, message: str, raw_id: object) -> None:
        super().__init__(message)
        self.id = raw_id


class UnknownIdsError(InputError):
    """Ids that the model has never seen. ids: which, where they were asked for one by one."""

    def __init__(self, message: str, ids: Sequence[int | str] = ()) -> None:
        super().__init__(message)
        self.ids = list(ids)


class UnknownUsersError(UnknownIdsError):
    """Users whose history is not stored."""


class ColdStartError(UnknownIdsError):
    """Histories that hold no known item."""


class ArtefactError(BeamtreeError):
    """A saved model or checkpoint is missing, damaged, or of another version."""


class ClusterError(BeamtreeError):
    """The workers of a cluster failed too often, or gave no answer."""


class UpdateRefused(BeamtreeError):
    """An update would do worse on the newest interactions than the model in use; nothing was changed."""


class DivergedError(BeamtreeError):
    """Training produced a loss that is not finite, or one that runs away."""


class InterruptedTraining(BeamtreeError):
    """Training stopped on request after writing a checkpoint."""
