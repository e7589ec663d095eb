"""The moment a picture rests at, in the address: a link opens at what its sender saw.

`at` is the number of a frame, or, where a lesson says something there, the name of what it says: that still holds when
the run is recorded again.
"""

from dataclasses import dataclass

import streamlit as st

from pages.pictures.scene import Scene


@dataclass(frozen=True)
class Opening:
    """Where a picture opens. `asked`: somebody wanted just this; else it may show how it gets there."""

    position: int
    asked: bool


def resting(scene: Scene) -> int:
    """Where an untouched picture comes to rest: at the verdict of the second step, when there is something to see."""
    ends = [i for i, frame in enumerate(scene.frames) if frame.stop and frame.at == min(2, scene.frames[-1].at)]
    return max(0, ends[0] - 1) if ends else 0


def opening(key: str, scene: Scene, resting: int, before: str = "") -> Opening:
    """`key` names the picture. What the address says counts when this session sees the picture for the first time.

    before: the name of the moment that a picture much like it was left at, for when the address says nothing.
    """
    asked = st.session_state.setdefault(f"moment.{key}", in_address() or before)
    found = read(asked, scene)
    return Opening(resting if found is None else found, found is not None)


def in_address() -> str:
    """The moment asked for, unless it is only what another picture has left there."""
    asked = st.query_params.get("at", "")
    return "" if asked == st.session_state.get("moment") else asked


def read(asked: str, scene: Scene) -> int | None:
    """The frame, or None where this scene has no such moment."""
    if asked.isdecimal():
        return int(asked) if int(asked) < len(scene.frames) else None
    return next((line.frame for line in scene.lines if line.id == asked and asked), None)


def name(position: int, scene: Scene) -> str:
    return next((line.id for line in scene.lines if line.frame == position and line.id), str(position))


def remember(position: int, scene: Scene) -> None:
    """Into the address with it."""
    st.session_state["moment"] = name(position, scene)
    if st.query_params.get("at") != st.session_state["moment"]:
        st.query_params["at"] = st.session_state["moment"]
