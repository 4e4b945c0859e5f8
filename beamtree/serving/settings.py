"""How a server runs and what it accepts: frozen, checked before anything starts."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from beamtree.serving.limits import Limits

MAX_THREADS = 1024
MAX_SECONDS = 86_400


class ServerSettings(BaseModel):
    """Where to listen, how much to do at once, how long to wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path = Field(description="folder of the saved model")
    model_name: str = Field(
        "beamtree", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="of the model in the addresses below /v2/models"
    )
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535, description="0 lets the system choose")
    threads: int = Field(
        default_factory=lambda: os.cpu_count() or 1, ge=1, le=MAX_THREADS, description="searches at once"
    )
    queue: int = Field(128, ge=0, description="work that may wait, in usual searches; more gets 503 at once")
    timeout_seconds: float = Field(
        10.0,
        gt=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
        description="for waiting and searching together, for headers and for a body to come, for an answer to be read",
    )
    stop_seconds: int = Field(30, ge=0, le=MAX_SECONDS, description="what running requests have after SIGTERM")
    watch_seconds: float = Field(
        1.0,
        ge=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
        description="between two looks at the model folder; 0: never look",
    )
    connections: int = Field(1000, ge=1, description="clients at once")
    unread_bytes: int = Field(
        33_554_432, ge=1, description="answers that wait for their readers; beyond it the slowest are dropped"
    )
    min_free_memory: int = Field(134_217_728, ge=0, description="bytes; where less is free, large calls get 503")
    min_free_disk: int = Field(134_217_728, ge=0, description="bytes; where less is free, events get 503")
    events: Path | None = Field(None, description="SQLite file of events; None: no events are taken")
    keep_events_days: float = Field(float("inf"), gt=0, description="events that arrived earlier are deleted")
    live: bool = Field(True, description="events change what the model recommends, without a new one")
    admin_token: str = Field("", repr=False, description="empty: there are no admin routes")
    cors_origins: tuple[str, ...] = ()
    log_histories: bool = False
    access_log: bool = True
    telemetry: bool = Field(False, description="traces go where the OTEL_* variables of the environment say")
    limits: Limits = Limits()
