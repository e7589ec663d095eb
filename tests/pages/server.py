"""Makes AppTest's server one where app.py has run before, as a browser's clicks always find it.

Every run of AppTest is a new server's first; on that, pages/parts/entry.py asks for another run, which loses the click.
"""

from streamlit.runtime.pages_manager import PagesManager


def make_visited() -> None:
    create = PagesManager.__init__

    def known(self: PagesManager, main: str, *rest: object, setup_watcher: bool = True) -> None:
        PagesManager.uses_pages_directory = False
        create(self, main, *rest, setup_watcher=setup_watcher)  # type: ignore[reportArgumentType]

    PagesManager.__init__ = known  # type: ignore[reportAttributeAccessIssue]
