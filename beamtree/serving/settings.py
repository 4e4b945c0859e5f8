"""How a server runs and what it accepts: frozen, checked before anything starts."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from beamtree.serving.limits import Limits

MAX_THREADS = 1024
MAX_SECONDS = 86_400


class ServerSettings(BaseModel):
    """Where to listen, how much to do at once, how long to wait. The descriptions are the help of `beamtree serve`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Path = Field(description="Folder of the saved model.")
    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for all.")
    port: int = Field(8000, ge=0, le=65535, description="Port; 0 lets the system choose.")
    threads: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        le=MAX_THREADS,
        description="Concurrent searches; default: one per core.",
    )
    queue: int = Field(128, ge=0, description="Searches that may wait, at the model's beam width; others get 503.")
    timeout: float = Field(
        10.0,
        gt=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
        description="Seconds for a request: to arrive, to be answered, for its answer to be read.",
    )
    stop_seconds: int = Field(30, ge=0, le=MAX_SECONDS, description="Seconds that running requests get after SIGTERM.")
    watch_seconds: float = Field(
        1.0,
        ge=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
        description="Seconds between checks of the model folder; 0: never.",
    )
    events: Path | None = Field(
        None, description="SQLite file that stores events, created where missing; default: no events."
    )
    keep_events_days: float | None = Field(
        None, gt=0, description="Delete events that arrived longer ago; default: never."
    )
    live: bool = Field(True, description="Update the served model's memory and trend with the events, without a fit.")
    cors_origin: tuple[str, ...] = Field((), description="Web origin that may call this server; repeatable.")
    model_name: str = Field(
        "beamtree",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Name of the model in the Open Inference Protocol: /v2/models/NAME.",
    )
    max_connections: int = Field(1000, ge=1, description="Clients at once.")
    max_unread: int = Field(
        33_554_432, ge=1, description="Bytes of answers not yet read; beyond it, the slowest clients are disconnected."
    )
    min_free_memory: int = Field(
        134_217_728, ge=0, description="Bytes of memory to keep free: with less, large calls get 503."
    )
    min_free_disk: int = Field(134_217_728, ge=0, description="Bytes of disk to keep free: with less, events get 503.")
    log_histories: bool = Field(False, description="Write histories and user ids into the log.")
    access_log: bool = Field(True, description="Write a log line for each request.")
    telemetry: bool = Field(False, description="Send OpenTelemetry traces, as the OTEL_* variables say.")
    admin_token: str = Field("", repr=False, description="Required by the admin routes; empty: there are none.")
    limits: Limits = Limits()
