"""`python -m pages.parts.site`: lessons, races and steps as plain files, for any web server or none.

Every page is a whole: its scene, the app's own player, no request to anywhere. A language is a folder.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import streamlit as st
from streamlit.logger import set_log_level

from pages.lessons import ORDER
from pages.lessons.lesson import Lesson
from pages.parts import exercises, leaf, lesson, moment, recorded, relatives, source
from pages.parts.handout import Shown
from pages.parts.leaf import Place
from pages.parts.text import NAMES, say, t
from pages.pictures import lanes
from pages.pictures import step as stepping

OUT = Path(__file__).parents[2] / "build" / "site"
STEPPED = ("code", "maths", "chat")  # prompts whose steps are there: a page of them takes up to 1.4 MB, a race .2


@contextmanager
def spoken(language: str) -> Iterator[None]:
    """As if a reader had chosen that language."""
    st.session_state["lang"] = language
    try:
        yield
    finally:
        del st.session_state["lang"]


def told(key: str) -> Lesson | None:
    """The lesson of that name; None where it is not written, or has no scene to play."""
    name = f"pages.lessons.{key}"
    return getattr(import_module(name), "LESSON", None) if find_spec(name) else None


def lesson_shown(key: str) -> Shown | None:
    """On the first prompt that has all its moments."""
    if not (one := told(key)):
        return None
    prompt = next((prompt for prompt in lesson.prompts(one) if lesson.played(one, prompt)), None)
    runs, scene = (prompt and lesson.played(one, prompt)) or ((), None)
    return Shown(key, t(f"{key}.title"), runs, scene, scene.lines[0].frame, "replay") if scene else None


def race_shown(trace: str, tuning: str, clock: lanes.Clock) -> Shown:
    runs = recorded.lanes(trace, tuning, list(source.methods()))
    scene = lanes.picture(runs, clock, say)
    return Shown("race", t("race.title"), runs, scene, len(scene.frames) - 1, "replay", wide=True)


def step_shown(trace: str, tuning: str, method: str) -> Shown | None:
    if not (run := recorded.recording(trace, method, tuning)):
        return None
    scene = stepping.picture(run, say)
    return Shown("step", t("stepping.title"), [run], scene, moment.resting(scene), "replay")


Words = Callable[[Place, Sequence[Place], str], bytes]
WORDS: Mapping[Place, Words] = {Place("family"): relatives.page, leaf.TASKS: exercises.page}  # pages without a scene
KINDS: Mapping[str, Callable[..., Shown | None]] = {"race": race_shown, "step": step_shown}


def shown(place: Place) -> Shown | None:
    make = KINDS.get(place.page)
    return make(**dict(place.choices)) if make else lesson_shown(place.page)


def places(lessons: Sequence[str], prompts: Sequence[str], stepped: Sequence[str]) -> list[Place]:
    """All pages, in the order in which they are offered."""
    found = [Place(key) for key in lessons if Place(key) in WORDS or lesson_shown(key)]
    for prompt in prompts:
        tunings = [tuning for tuning in ("device", "published") if recorded.methods(prompt, tuning)]
        pairs = [(tuning, clock) for tuning in tunings for clock in lanes.CLOCKS]
        found += [Place("race", (("trace", prompt), ("tuning", a), ("clock", b))) for a, b in pairs]
    for prompt in (prompt for prompt in prompts if prompt in stepped):
        known = recorded.methods(prompt, "published")
        methods = [key for key in source.methods() if key in known]
        found += [Place("step", (("trace", prompt), ("tuning", "published"), ("method", key))) for key in methods]
    return [*found, leaf.TASKS]


def build(out: Path, plan: Callable[[], list[Place]], app: str) -> int:
    """Write the site. plan: its places, asked for once a language is chosen. Returns the number of files."""
    written = 1
    for language in NAMES:
        with spoken(language):
            pages = plan()
            made = {place: whole for place in pages if (whole := page(place, pages, app))}
            made |= {leaf.HOME: leaf.index(list(made), app)}
        for place, whole in made.items():
            write(out / language / place.file, whole)
        written += len(made)
    write(out / "index.html", leaf.door())
    return written


def page(place: Place, pages: Sequence[Place], app: str) -> bytes | None:
    if words := WORDS.get(place):
        return words(place, pages, app)
    found = shown(place)
    return leaf.page(place, pages, found, app) if found else None


def write(path: Path, whole: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole)


def options() -> argparse.Namespace:
    about = argparse.ArgumentParser("python -m pages.parts.site", description="Write the static site.")
    about.add_argument("--out", type=Path, default=OUT, help="folder to write to (default: build/site)")
    about.add_argument("--app", default="", help="address of a running app, for links to what only it can do")
    about.add_argument("--lessons", nargs="*", default=ORDER, help="lessons to include (default: all)")
    about.add_argument("--prompts", nargs="*", help="recorded prompts to race (default: all)")
    about.add_argument("--steps", nargs="*", default=STEPPED, help="those of them to step through as well")
    return about.parse_args()


def main() -> None:
    asked = options()
    set_log_level("error")  # outside a session Streamlit warns at every look at its state
    prompts = recorded.prompts() if asked.prompts is None else asked.prompts
    count = build(asked.out, lambda: places(asked.lessons, prompts, asked.steps), asked.app.rstrip("/"))
    size = sum(path.stat().st_size for path in asked.out.rglob("*.html")) / 1e6
    print(f"{count} pages, {size:.0f} MB, in {asked.out}: open index.html, or put the folder on any web server.")


if __name__ == "__main__":
    main()
