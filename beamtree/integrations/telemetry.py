"""OpenTelemetry traces of a server, exported over OTLP. Needs the extra `beamtree[telemetry]`.

Everything is configured by the standard OTEL_* variables, which the SDK reads: where to, how much is sampled, which
resource it is, how many spans go at once.
"""

import os
import threading
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version

from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from beamtree.errors import InputError

NANOSECONDS = 1_000_000_000
LAST_SPANS_SECONDS = 2.0
PROTOCOL = "http/protobuf"
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"


class Spans:
    """Writes a span for each request that is done. Nothing waits for the collector: spans are sent by a thread."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        """exporter: by default the one that the environment names; InputError where beamtree does not have it."""
        own = Resource({"service.name": "beamtree", "service.version": version("beamtree")})
        self._provider = TracerProvider(
            resource=Resource.create().merge(own).merge(OTELResourceDetector().detect()), shutdown_on_exit=False
        )
        chosen = exporter or chosen_exporter(os.environ)
        if chosen is not None:
            self._provider.add_span_processor(BatchSpanProcessor(chosen))
        self._tracer = self._provider.get_tracer("beamtree", version("beamtree"))

    def record(
        self,
        name: str,
        *,
        seconds: float,
        is_failure: bool,
        headers: Iterable[tuple[bytes, bytes]],
        attributes: Mapping[str, str | int | float],
    ) -> None:
        """A span that ends now, with its duration in seconds; headers may name its trace."""
        ended_at = time.time_ns()
        carrier = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
        span = self._tracer.start_span(
            name,
            context=extract(carrier),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=ended_at - int(seconds * NANOSECONDS),
        )
        if is_failure:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended_at)

    def close(self) -> None:
        """Send what waits to be sent, but not for long: a collector that is away must not keep a server from ending."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(LAST_SPANS_SECONDS)


def chosen_exporter(environment: Mapping[str, str]) -> SpanExporter | None:
    """The exporter that OTEL_TRACES_EXPORTER names: otlp (default), console, or none."""
    match environment.get(EXPORTER_VARIABLE, "").strip() or "otlp":
        case "none":
            return None
        case "console":
            return ConsoleSpanExporter()
        case "otlp":
            _check_protocol(environment)
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        case other:
            raise InputError(f"{EXPORTER_VARIABLE}: expected otlp, console or none, got {other!r}. Set one of these.")


def _check_protocol(environment: Mapping[str, str]) -> None:
    given = [(name, environment[name]) for name in PROTOCOL_VARIABLES if environment.get(name)]
    if given and given[0][1] != PROTOCOL:
        name, value = given[0]
        raise InputError(
            f"{name}: expected {PROTOCOL}, the only protocol that beamtree exports with, got {value!r}. Unset it, and "
            "let OTEL_EXPORTER_OTLP_ENDPOINT name the collector's port for OTLP over HTTP, usually 4318."
        )
