"""The scenes of whole runs, made once for all readers though a page runs again at every rest."""

from collections.abc import Sequence

from pages.parts.once import once
from pages.parts.text import say
from pages.pictures import lanes
from pages.pictures import step as stepping
from pages.pictures.scene import Scene
from spec_core.trace import Trace

HELD = 24  # of each kind: a big one takes some megabytes


@once(HELD)
def step(trace: Trace) -> Scene:
    return stepping.picture(trace, say)


@once(HELD)
def opening(trace: Trace, steps: int) -> Scene:
    """Of its first steps alone."""
    return stepping.picture(Trace(trace.header, trace.steps[: steps + 1], trace.end), say)


@once(HELD)
def race(traces: Sequence[Trace], clock: lanes.Clock) -> Scene:
    return lanes.picture(traces, clock, say)
