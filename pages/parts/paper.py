"""What every chart begins with."""

import plotly.graph_objects as go


def blank(layout: dict[str, object]) -> "go.Figure":
    """An empty figure. Plotly uses pandas as soon as some reader's first table begins to load it: here it is whole."""
    import pandas  # noqa: F401  not above: no page's first picture is to wait for it

    return go.Figure(layout=layout)
