"""Where the numbers come from: what is measured and what is modelled, on which machine, with whose work."""

from importlib.metadata import PackageNotFoundError, version

import streamlit as st

from pages.parts import bring, entry, recorded, source
from pages.parts.cards import title
from pages.parts.text import t, t_or

PACKAGES = ("streamlit", "torch", "transformers", "plotly", "numpy", "msgspec", "gguf", "safetensors")


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "–"


def recorded_on() -> list[str]:
    """The machines the shipped recordings were made on, with dates."""
    found = [recorded.recording(r.prompt, r.method, r.preset) for r in recorded.recordings()]
    heads = [trace.header for trace in found if trace]
    return sorted({f"{head.device} · {head.dtype} · {head.date} · torch {head.versions['torch']}" for head in heads})


entry.through_app()
st.title(t("about.title"), anchor=False)
st.markdown(t("about.lead"))
left, right = st.columns(2, gap="large")
with left:
    st.subheader(t("about.numbers"), anchor=False)
    st.markdown(t("about.numbers.text"))
    st.subheader(t("about.machines"), anchor=False)
    st.markdown("\n".join(f"- {line}" for line in recorded_on()) or t("about.machines.none"))
    st.subheader(t("about.backend"), anchor=False)
    backend = source.backend() if source.can_run() else "none"
    st.markdown(t(f"about.backend.{backend}", {"count": source.hands()}))
    st.subheader(t("about.versions"), anchor=False)
    st.table({package: installed(package) for package in PACKAGES})
with right:
    st.subheader(t("about.methods"), anchor=False)
    for method in source.methods().values():
        idea = t_or(f"method.{method.key}.idea", method.idea)
        st.markdown(f"**{title(method.card)}** {method.paper}  \n{idea}")
    st.subheader(t("about.licences"), anchor=False)
    st.markdown(t("about.licences.text"))
bring.section()
