"""beamtree export: a trained model for other programs."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from beamtree.cli.console import messages
from beamtree.cli.options import BeamOption, ModelArgument
from beamtree.errors import InputError
from beamtree.export.vectors import export_vectors
from beamtree.retrieval.recommender import Recommender

app = typer.Typer(help="Write a model for other programs: ONNX, or its vectors.", no_args_is_help=True)


@app.command()
def onnx(
    model: ModelArgument,
    out: Annotated[Path, typer.Argument(help="File to write, such as model.onnx.", metavar="OUT")],
    *,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of items.")] = 20,
    beam: BeamOption = None,
    raw_ids: Annotated[bool, typer.Option(help="Also output raw ids.")] = True,
) -> None:
    """Write weights, tree and the whole beam search as one ONNX file; k and beam are fixed in it."""
    if find_spec("onnx") is None:
        raise InputError("Writing ONNX needs the package onnx. Install it: pip install 'beamtree[onnx]'.")
    from beamtree.export.onnx import export_onnx

    files = export_onnx(Recommender.load(model).artefact, out, k=k, beam_width=beam, raw_ids=raw_ids)
    beside = "" if files.constants is None else f" and {files.constants} (keep them together)"
    messages.print(f"Wrote {files.model}{beside}, {files.size / 1e6:,.1f} MB.", soft_wrap=True)


@app.command()
def vectors(
    model: ModelArgument,
    out: Annotated[Path, typer.Argument(help="Folder to write to.", metavar="OUT_DIR")],
) -> None:
    """Write the vectors of nodes and items as Parquet and NumPy, with raw ids, levels and nodes."""
    for path in export_vectors(Recommender.load(model).artefact, out):
        messages.print(f"Wrote {path}, {path.stat().st_size / 1e6:,.1f} MB.", soft_wrap=True)
