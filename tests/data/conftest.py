"""Properties are checked without a stopwatch, so that a busy machine fails no test."""

from hypothesis import settings

settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")
