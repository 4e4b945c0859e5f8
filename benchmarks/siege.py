"""A server under attack: what innocent clients notice, and what of it stays. All on this machine, in bounded time.

    python -m benchmarks.siege --json

Each attack is a file of `benchmarks/siege_attacks`; it starts a real server on loopback, watches innocent clients, and
returns its figures. Over all attacks, with the most that is allowed:

innocent_failed    requests of innocent clients that got no right answer (0)
memory_growth_mb   the most that a server grew during an attack, at its peak (100)
health_p99_ms      `/healthz` during an attack (250)
light_over_alone   median of light requests beside heavy clients, over the same without them (10)
servers_died       (0)

and with the least:

successes_ratio    batches answered per second from twice the connections, over those from half of them (0.8)
"""

import argparse
import importlib
import json
import pkgutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from benchmarks import siege_attacks
from benchmarks.siege_harness import Figures, save_besieged_model

UPPER_BOUNDS = {
    "innocent_failed": 0,
    "memory_growth_mb": 100,
    "health_p99_ms": 250,
    "light_over_alone": 10,
    "servers_died": 0,
}
# An overloaded server answers as many batches from 64 connections as from 32: a ratio of 1. Its two windows
# of seconds follow one another on a machine that does other things too: a fifth is allowed for that.
LOWER_BOUNDS = {"successes_ratio": 0.8}
SUMMED = ("innocent_failed", "servers_died")


class Attack(Protocol):
    """What each file of `siege_attacks` defines under the name `attack`."""

    def __call__(self, model: Path, folder: Path, *, seconds: float) -> Figures:
        """Attack servers of this model for about so many seconds, with files in this folder; its figures."""
        ...


def attacks() -> dict[str, Attack]:
    """Every attack by the name of its file."""
    names = sorted(module.name for module in pkgutil.iter_modules(siege_attacks.__path__))
    return {name: importlib.import_module(f"{siege_attacks.__name__}.{name}").attack for name in names}


def besiege(chosen: Mapping[str, Attack], *, seconds: float) -> Figures:
    """The figures of each attack by its name, and those over all of them."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        save_besieged_model(model)
        for name, attack in chosen.items():
            own = Path(folder) / name
            own.mkdir()
            figures[name] = attack(model, own, seconds=seconds)
    return overall(figures) | {"attacks": figures}


def overall(figures: Mapping[str, Figures]) -> Figures:
    """The worst of each figure, sums of failures, and whether all bounds hold.

    An attack may lack a figure. One with a lower bound is only there if an attack has it; others are then 0.
    """
    found = {name: [own[name] for own in figures.values() if name in own] for name in (*UPPER_BOUNDS, *LOWER_BOUNDS)}
    most = {name: sum(found[name]) if name in SUMMED else max(found[name], default=0) for name in UPPER_BOUNDS}
    least = {name: min(found[name]) for name in LOWER_BOUNDS if found[name]}
    are_low = [most[name] <= bound for name, bound in UPPER_BOUNDS.items()]
    are_high = [value >= LOWER_BOUNDS[name] for name, value in least.items()]
    return most | least | {"held": all(are_low + are_high)}


def main() -> None:
    """Parse the command line and print the figures."""
    known = attacks()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", choices=known, action="append", help="only this one; may be given again")
    parser.add_argument("--seconds", type=float, default=8.0, help="time of each attack")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if not 0 < arguments.seconds <= 120:
        parser.error("--seconds is more than 0 and at most 120")
    chosen = {name: known[name] for name in arguments.attack or known}
    figures = besiege(chosen, seconds=arguments.seconds)
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.pop("attacks").items():
        print(name)
        for figure, measured in value.items():
            print(f"  {figure:22} {measured}")
    for name, value in figures.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
