"""Lines: a metric over a setting, over rounds of the tree, over instances."""

from collections.abc import Mapping, Sequence

Points = Sequence[tuple[float, float]]
DASHES = ("-", "--", ":")


def plot_lines(lines: Mapping[str, Points], *, x: str, y: str = "F@20", log_x: bool = False) -> str:
    """A line for each name; empty text where there is none with a point."""
    from beamtree.diagnostics.svg import FAINT, INK, SERIES, figure_style, panels, to_svg

    colours = (*SERIES, INK)
    drawn = {name: points for name, points in lines.items() if points}
    if not drawn:
        return ""
    with figure_style():
        figure, [axes] = panels(height=3.4)
        for place, (name, points) in enumerate(drawn.items()):
            axes.plot(
                [at for at, _ in points],
                [value for _, value in points],
                marker="o",
                markersize=3.0,
                label=name,
                color=colours[place % len(colours)],
                linestyle=DASHES[place // len(colours) % len(DASHES)],
            )
        if log_x:
            axes.set_xscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(axis="x", color=FAINT)
        axes.legend(fontsize=8)
        return to_svg(figure, description=f"{y} over {x}: {', '.join(drawn)}")
