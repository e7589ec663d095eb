"""The runs a reader has asked for: followed on every page, found again after a reload, put on the desk as they end.

They go on in the queue's own process whatever happens here; all that has to be kept is their ids, also in the address.
"""

from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import cards, source
from pages.parts.state import Desk, Notice, Order, desk
from pages.parts.text import Value, t, t_or

if TYPE_CHECKING:
    from spec_core.jobs import Snapshot

PAUSE = 0.4  # seconds between two looks at the run in hand: drawing takes time from it
AWAY = 2.0  # the same on pages that do not show it
MOST = 24  # ids read from an address, which anybody can write


def begin(orders: list[Order], prompt: str) -> None:
    """Queue the orders. A method without its drafter is left out, and said."""
    known = source.methods()
    ready = [order for order in orders if source.has_drafter(known[order.method])]
    missing = [known[order.method].title for order in orders if order not in ready]
    try:
        desk().start(source.submit(ready), prompt)
        desk().notices = [Notice("problem.drafter", {"method": title}) for title in missing]
    except source.Problem as problem:
        desk().notices = [problem.notice]


def stop() -> None:
    """Give up all runs. What the one in hand has decoded stays, with an end that says it was cut."""
    for id in desk().todo:
        source.cancel(id)


def put_in_address() -> None:
    ids = ",".join(desk().asked)
    if ids and st.query_params.get("job") != ids:
        st.query_params["job"] = ids


def leave() -> None:
    """The runs last asked for are not what is shown any more."""
    desk().asked = []
    st.query_params.pop("job", None)


def adopt() -> None:
    """After a reload the session is new and only the address knows which runs were asked for."""
    ids = [id for id in st.query_params.get("job", "").split(",") if id][:MOST]
    if ids and desk() == Desk() and source.can_run():
        first = source.look(ids[0])
        desk().start(ids, first.spec.prompt if first else "")


def collect() -> "Snapshot | None":
    """Put the runs that are over on the desk, in the order asked for. Returns the one in hand."""
    while todo := desk().todo:
        now, *_ = [source.look(id) for id in todo]  # a look at each, since what nobody looks at is given up
        if now and not now.over:
            return now
        settle(todo[0], now)
    return None


def settle(id: str, now: "Snapshot | None") -> None:
    if now is None:
        desk().settle(id, None, Notice("problem.gone", {}))
    elif failure := now.failure:
        title = source.methods()[now.spec.method].title
        desk().settle(id, None, Notice(f"problem.{failure.kind}", {"method": title, **failure.values}))
        if failure.everywhere:  # the others would only say the same
            stop()
            desk().todo = []
    else:
        desk().settle(id, now.trace if now.trace and now.trace.steps else None, None)


def label() -> dict[str, Value]:
    place = desk()
    return {"number": len(place.asked) - len(place.todo) + 1, "count": len(place.asked)}


def follow() -> None:
    """On every page: keep the runs alive, and tell that they go on."""
    adopt()
    collect()
    if not desk().todo:
        return
    put_in_address()

    def look() -> None:
        if collect():
            st.caption(t("progress.elsewhere", label()), width="content")
        else:
            st.rerun()

    st.fragment(look, run_every=AWAY)()


def watch(bar: DeltaGenerator, view: DeltaGenerator) -> None:
    """Show the run in hand, now and every while. When it is over everything is drawn anew."""
    drawn = len(desk().todo)

    def look() -> None:
        now = collect()
        if now and len(desk().todo) == drawn:
            draw(now, bar, view)
        else:
            st.rerun()

    st.fragment(look, run_every=PAUSE)()


def draw(now: "Snapshot", bar: DeltaGenerator, view: DeltaGenerator) -> None:
    title = t_or(f"method.{now.spec.method}.title", source.methods()[now.spec.method].title)
    said = {**label(), "method": title, "position": now.position}
    if now.state == "running" and now.trace:
        cards.growing(now.trace, bar, view, said, now.spec.budget)
    else:
        view.empty()  # a fragment may only fill a place that it touched when the page was drawn
        bar.progress(0.0, t("progress.wait" if now.position else "progress.load", said))
