"""Which target goes with which drafters, and what is known about each: a frozen table, no torch.

Sources are bundled folders or Hugging Face ids. Sizes come from the projects' own configs and papers; what of it was
tried here stands in docs/MODELS.md, beside what was not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BUNDLED = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Offer:
    """One published drafter. numbers: its weights, in millions, without copies of the target's tables.

    block: the slots a DFlash drafter was trained with. tau: as its makers or others report it, and on what. curve:
    share of slot-k guesses that hold when those before held, as published; far less in slot 1 means wrong wiring.
    """

    kind: str
    source: str
    layout: str
    numbers: float
    tau: str = ""
    block: int = 0
    curve: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """A target and, by kind of network (eagle, eagle3, dflash), where its drafter is.

    hub: its Hugging Face id, where `source` is none. numbers: its weights, in millions. template: a chat template for
    targets that ship none. offers: every published drafter that is known, `drafters` names one of each kind.
    """

    key: str
    title: str
    source: str
    drafters: dict[str, str] = field(default_factory=dict)
    hub: str = ""
    numbers: float = 0
    template: str = ""
    offers: tuple[Offer, ...] = ()


def published(key: str, title: str, source: str, numbers: float, *offers: Offer, template: str = "") -> Pair:
    """A target from the hub; of each kind its first offer is the one that runs."""
    first = {offer.kind: offer.source for offer in reversed(offers)}
    return Pair(key, title, source, first, source, numbers, template, offers)


# Vicuna's files hold no chat template; this is FastChat's, which its heads were trained and measured with.
VICUNA = (
    "{{ bos_token }}A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions."
    "{% for m in messages %}{% if m.role == 'user' %} USER: {{ m.content }} ASSISTANT:"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)

# Greedy, DFlash 2's makers on GSM8K-like prompts with Qwen3-4B; slots between those were not given.
DFLASH_CURVE = {1: 0.854, 2: 0.803, 7: 0.729}

PAIRS = (
    Pair(
        "smollm2-135m",
        "SmolLM2-135M-Instruct",
        "embedded",
        {
            "eagle": "bundled:smollm2-135m/eagle",
            "eagle3": "bundled:smollm2-135m/eagle3",
            "dflash": "bundled:smollm2-135m/dflash",
        },
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        134.5,
    ),
    published(
        "qwen3-0.6b",
        "Qwen3-0.6B",
        "Qwen/Qwen3-0.6B",
        596,
        Offer("eagle3", "GavinLucky/SGLang-EAGLE3-Qwen3-0.6B-SpecForge", "SpecForge", 56),
    ),
    published(
        "qwen3-1.7b",
        "Qwen3-1.7B",
        "Qwen/Qwen3-1.7B",
        1721,
        Offer("eagle3", "AngelSlim/Qwen3-1.7B_eagle3", "AngelSlim", 137, "2.17, mean of AngelSlim's sets, short chain"),
    ),
    published(
        "qwen3-4b",
        "Qwen3-4B",
        "Qwen/Qwen3-4B",
        4022,
        Offer(
            "eagle3", "AngelSlim/Qwen3-4B_eagle3", "AngelSlim", 218, "3.48, mean of 7 sets, tree of 60 (DFlash paper)"
        ),
        Offer("dflash", "z-lab/Qwen3-4B-DFlash-b16", "z-lab", 540, "6.54, mean of 7 sets (paper)", 16, DFLASH_CURVE),
    ),
    published(
        "qwen3-8b",
        "Qwen3-8B",
        "Qwen/Qwen3-8B",
        8191,
        Offer(
            "eagle3", "AngelSlim/Qwen3-8B_eagle3", "AngelSlim", 400, "3.40, mean of 7 sets, tree of 60 (DFlash paper)"
        ),
        Offer("eagle3", "RedHatAI/Qwen3-8B-speculator.eagle3", "speculators", 400),
        Offer("dflash", "z-lab/Qwen3-8B-DFlash-b16", "z-lab", 1050, "6.49, mean of 7 sets (paper)", 16),
        Offer("dflash", "RedHatAI/Qwen3-8B-speculator.dflash", "speculators", 1050, "3.74, math", 8, {1: 0.822}),
    ),
    published(
        "llama3.1-8b",
        "Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        8030,
        Offer("eagle", "yuhuili/EAGLE-LLaMA3.1-Instruct-8B", "SafeAILab", 250),
        Offer("eagle3", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "SafeAILab", 425, "6.13, MT-bench"),
        Offer("eagle3", "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge", "SpecForge", 425),
        Offer("eagle3", "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "speculators", 425),
        Offer(
            "dflash",
            "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
            "z-lab",
            1170,
            "4.32 GSM8K, 4.91 HumanEval, 3.73 Alpaca (paper)",
            10,
        ),
    ),
    published(
        "vicuna-7b",
        "Vicuna-7B v1.3",
        "lmsys/vicuna-7b-v1.3",
        6738,
        Offer("eagle", "yuhuili/EAGLE-Vicuna-7B-v1.3", "SafeAILab", 240, "3.94, MT-bench"),
        template=VICUNA,
    ),
    published(
        "vicuna-13b",
        "Vicuna-13B v1.3",
        "lmsys/vicuna-13b-v1.3",
        13016,
        Offer("eagle", "yuhuili/EAGLE-Vicuna-13B-v1.3", "SafeAILab", 370, "3.98, MT-bench"),
        Offer("eagle3", "yuhuili/EAGLE3-Vicuna1.3-13B", "SafeAILab", 638),
        template=VICUNA,
    ),
)


def find(key: str) -> Pair:
    """The table's pair of that key; any other name is a Hugging Face id or a folder without known drafters."""
    return next((pair for pair in PAIRS if pair.key == key), Pair(key, key, key))


def offer_of(source: str) -> Offer | None:
    """What the table knows of a drafter, by its id."""
    return next((offer for pair in PAIRS for offer in pair.offers if offer.source == source), None)
