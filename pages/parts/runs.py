"""The runs a reader has asked for: followed on every page, found again after a reload, put on the desk as they end.

They go on in the queue's own process whatever happens here; all that has to be kept is their ids, also in the address.
"""

import math
from typing import TYPE_CHECKING

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.parts import cards, source
from pages.parts.address import put
from pages.parts.state import Desk, Notice, Order, desk
from pages.parts.text import Value, catalogue, t, t_or

if TYPE_CHECKING:
    from spec_core.job import Moment, Snapshot

PAUSE = 0.4  # seconds between two looks at the run in hand: drawing takes time from it
AWAY = 2.0  # the same on pages that do not show it
AGAIN = ("died", "exhausted", "closing", "busy")  # what may well go better the next time
FULL = ("problem.full", "problem.own", "problem.rate", "problem.closed")
MOST = 24  # ids read from an address, which anybody can write


def begin(orders: list[Order], prompt: str) -> bool:
    """Queue the orders, or say why not. A method without its drafter is left out, and said."""
    known = source.methods()
    ready = [order for order in orders if source.has_drafter(known[order.method])]
    missing = [Notice("problem.drafter", {"method": order.method}) for order in orders if order not in ready]
    try:
        if ready:
            desk().start(source.submit(ready), prompt)
        desk().notices = missing
    except source.Problem as problem:
        desk().notices = [problem.notice]
    return bool(desk().todo)


def try_again() -> None:
    """The runs whose worker broke off, once more."""
    try:
        desk().start_again(source.again(desk().broken))
    except source.Problem as problem:
        desk().notices = [problem.notice]


def stop() -> None:
    """Give up all runs. What the one in hand has decoded stays, with an end that says it was cut."""
    for id in desk().todo:
        source.cancel(id)


def leave() -> None:
    """The runs last asked for are not what is shown any more."""
    desk().asked = []
    put("job", "")


def adopt() -> bool:
    """After a reload the session is new and only the address knows which runs were asked for. Whether it did."""
    ids = [id for id in st.query_params.get("job", "").split(",") if id][:MOST]
    if ids and desk() == Desk() and source.can_run():
        first = source.look(ids[0])
        desk().start(ids, first.spec.prompt if first else "")
        return True
    return False


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
        return
    failure = now.failure
    notice = Notice(f"problem.{failure.kind}", {"method": now.spec.method, **failure.values}) if failure else None
    whole = now.trace if now.state != "failed" and now.trace and now.trace.steps else None
    desk().settle(id, whole, notice)
    if failure and failure.kind in AGAIN and id not in desk().broken:
        desk().broken.append(id)
    if failure and failure.everywhere:  # the others would only say the same
        stop()
        desk().todo = []


def said(notice: Notice) -> str:
    """A notice in the reader's language; of a kind nobody translated, its own words."""
    key = notice.key if notice.key in catalogue("en") else "problem.run"
    method = source.methods().get(str(notice.values.get("method")))
    return t(key, {**notice.values, "method": cards.title(method.card)} if method else notice.values)


def label() -> dict[str, Value]:
    place = desk()
    return {"number": len(place.asked) - len(place.todo) + 1, "count": len(place.asked)}


def catch_up() -> None:
    """First thing on every page: find the runs in the address again, and settle those that are over."""
    if adopt() and collect() is None and "trace" in st.query_params:
        desk().fresh = False  # they were over before: the link says what to look at
    collect()
    if ids := ",".join(desk().asked):
        put("job", ids)


def follow() -> None:
    """On a page that does not show them: keep the runs alive, and tell that they go on."""
    if not desk().todo:
        return

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
    said = {**label(), "method": title, "position": now.position, **about(now.wait)}
    if now.state == "running" and now.trace:
        cards.growing(now.trace, bar, view, said, now.spec.budget)
    else:
        view.empty()  # a fragment may only fill a place that it touched when the page was drawn
        bar.progress(0.0, t(f"progress.{waiting(now)}", said))


def waiting(now: "Moment") -> str:
    """Which sentence to say of a run that has not begun: its place in the line, and how long that takes, if known."""
    if not now.position:
        return "load"
    return "wait" if now.wait is None else "minutes" if now.wait >= 90 else "seconds"


def about(wait: float | None) -> dict[str, Value]:
    """A wait as one says it: no seconds that nobody can know."""
    seconds = wait or 0.0
    return {"seconds": 5 * math.ceil(seconds / 5), "minutes": math.ceil(seconds / 60)}
