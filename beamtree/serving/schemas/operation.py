"""Health, readiness, and which model is served."""

from typing import Literal

from pydantic import BaseModel


class HealthAnswer(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class ReloadFailure(BaseModel):
    """Why the latest model in the folder is not served."""

    message: str
    at: str


class ReadyAnswer(BaseModel):
    """Whether requests can be answered, and by which model."""

    ready: bool
    model_version: str
    previous_version: str | None
    last_reload_failure: ReloadFailure | None


class AdminAnswer(BaseModel):
    """Which model is served now."""

    model_version: str
    previous_version: str | None
    changed: bool
