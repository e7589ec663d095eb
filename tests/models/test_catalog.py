"""What docs/MODELS.md says about published models is what the catalog and the tests say."""

import re
from pathlib import Path

from models import catalog, export

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs/MODELS.md").read_text()


def test_every_test_it_names_exists() -> None:
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", TEXT)
    assert len(named) > 25
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_every_row_of_the_reference_has_a_test() -> None:
    rows = [f"e_b{n}" for n in (9, 10, 11, 12, 13, 15, 16, 17, 24, 29)] + [
        f"d_t{n}" for n in (2, 9, 10, 11, 12, 14, 15)
    ]
    for row in rows:
        assert f"::test_{row}_" in TEXT, row


def test_every_drafter_of_the_catalog_is_in_the_table() -> None:
    for pair in catalog.PAIRS:
        for offer in pair.offers:
            line = next(line for line in TEXT.splitlines() if offer.source in line)
            assert f"`{pair.key}`" in line
            assert f"| {offer.layout} |" in line
            if offer.tau:
                assert offer.tau.split(",")[0].split(" (")[0] in line


def test_every_layout_that_is_written_is_described() -> None:
    for kind, known in export.LAYOUTS.items():
        for name in known:
            project = {"zlab": "z-lab", "safeailab-bin": "SafeAILab", "safeailab": "SafeAILab"}.get(name, name)
            assert re.search(rf"\| {project} [^|]*{kind.replace('eagle3', 'eagle-3')}", TEXT, re.IGNORECASE), (
                kind,
                name,
            )
