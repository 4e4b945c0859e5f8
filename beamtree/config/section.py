"""The base of all sections of settings: frozen, strict about names, checked for contradictions."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from beamtree.errors import SettingsError

SettingT = TypeVar("SettingT")


class Section(BaseModel):
    """Settings that belong together; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def contradictions(self) -> list[str]:
        """Sentences on settings of this section that cannot hold together."""
        return []


def decided(value: SettingT | None, *, name: str, kind: str) -> SettingT:
    """A setting that a log may decide; SettingsError where it is still open. kind: what it is to be, in words."""
    if value is None:
        raise SettingsError(
            f"Expected {name} to be {kind}, but it is still to be decided by a log: fit with DeepTreeRetriever, "
            "prepare the log with prepare_log, or set it."
        )
    return value


def given_values(value: Any) -> Any:
    """A table without its empty entries, and an empty one where there is none: None takes back what was set before."""
    if value is None:
        return {}
    return {name: inner for name, inner in value.items() if inner is not None} if isinstance(value, Mapping) else value


def flat_names(value: Any) -> Any:
    """A table with tables in it as one with dotted names, the way TOML writes them: {"items": {"price": ...}} has
    items.price. Anything but a table is left as it is."""
    if not isinstance(value, Mapping):
        return value
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= {f"{name}.{key}": deeper for key, deeper in flat_names(inner).items()}
        else:
            flat[str(name)] = inner
    return flat
