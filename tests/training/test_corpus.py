"""The corpus: batched writing equals writing alone, quotas hold, and a stopped run goes on where it was."""

import json
import random
import sys
from pathlib import Path

import pytest
import torch

from models.load import Model
from spec_core.trace import Sampling
from spec_core.training import corpus
from spec_core.training.corpus import Corpus, Dialogue, Question, Template, alike, read
from spec_core.training.generate import Text, write
from tests.toy import talking_model, toy_folder

RNG = torch.Generator()


def dialogue(*answer: int, question: int = 7, ended: bool = True) -> Dialogue:
    return Dialogue([question, 5, *answer], 2, 0.0, "self", ended)


def test_texts_written_together_equal_texts_written_alone(model: Model) -> None:
    prompts = [[5, 6, 7], [9] * 11, [12, 13, 14, 15, 16, 17]]
    together = [Text(list(p), Sampling()) for p in prompts]
    alone = [Text(list(p), Sampling()) for p in prompts]
    stops = frozenset(range(20, 30))  # many, so that rows leave the batch at different times
    write(model.decoder, together, stops, 20, RNG)
    for text in alone:
        write(model.decoder, [text], stops, 20, RNG)
    assert together == alone
    assert len({len(t.ids) - len(p) for t, p in zip(together, prompts, strict=True)}) > 1


def test_sampled_texts_repeat_with_their_seed_only(model: Model) -> None:
    def sampled(seed: int) -> list[int]:
        text = Text([5, 6, 7], Sampling(temperature=1.0))
        write(model.decoder, [text], frozenset(), 20, torch.Generator().manual_seed(seed))
        return text.ids

    assert sampled(1) == sampled(1) != sampled(2)


def test_loops_and_cut_answers_stay_within_their_shares(tmp_path: Path) -> None:
    rng = random.Random(0)
    plain = [dialogue(*rng.sample(range(99), 30), question=i) for i in range(100)]
    looping = [dialogue(*[1, 2] * 15, question=i) for i in range(100, 200)]
    cut = [dialogue(*rng.sample(range(99), 30), question=i, ended=False) for i in range(200, 400)]
    found = Corpus(tmp_path / "c.jsonl")
    found.add(plain + looping + cut)
    quota = found.quota
    assert 0 < quota.looping <= corpus.LOOPS * (quota.kept + 10) + 1
    assert 0 < quota.cut <= corpus.CUT * (quota.kept + 10) + 1


def test_a_reopened_corpus_knows_its_questions_and_ignores_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    Corpus(path).add([dialogue(1, 2, 3)])
    with path.open("a") as file:
        file.write('{"ids": [1, 2')
    again = Corpus(path)
    again.add([dialogue(4, 5, 6), dialogue(4, 5, 6, question=8)])
    assert [d.answer for d in read(path)] == [[1, 2, 3], [4, 5, 6]]
    assert len(again) == 2


def test_the_template_comes_apart_and_together() -> None:
    tokenizer = talking_model().tokenizer
    assert tokenizer is not None
    assert Template.of(tokenizer).around(tokenizer.raw("Why?")) == tokenizer.chat("Why?")


def test_the_command_answers_given_questions_then_its_own_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(corpus, "ANSWER", 12)
    monkeypatch.setattr(corpus, "QUESTION", 40)
    monkeypatch.setattr(corpus, "ASK", Sampling(temperature=5.0))  # a random model comes to an end only by chance
    monkeypatch.setattr(corpus, "LOOPS", 1.0)
    monkeypatch.setattr(corpus, "CUT", 1.0)
    target, prompts = toy_folder(tmp_path / "target"), tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Question {i}?", "source": "given"}) + "\n" for i in range(3)))
    for goal, written in ((2, 2), (8, 8)):
        arguments = ["corpus", "--target", str(target), "--dialogues", str(goal), "--size", "2"]
        monkeypatch.setattr(sys, "argv", [*arguments, "--prompts", str(prompts)])
        corpus.main()
        found = list(read(corpus.corpus_file()))
        assert len(found) >= written
    assert [d.source for d in found[:4]] == ["given", "given", "given", "self"]
    assert len({tuple(d.question) for d in found}) == len(found)


def test_only_self_written_dialogues_are_exported_and_they_import_again(tmp_path: Path) -> None:
    given = Dialogue([3, 5, 1, 2], 2, 0.0, "given", True)
    Corpus(tmp_path / "all.jsonl").add([dialogue(1, 2, 3), given, dialogue(4, 5, question=8)])
    assert corpus.export(tmp_path / "all.jsonl", tmp_path / "own.jsonl.gz") == 2
    assert list(read(tmp_path / "own.jsonl.gz")) == [dialogue(1, 2, 3), dialogue(4, 5, question=8)]


def test_made_up_questions_begin_as_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "ASK", Sampling(temperature=5.0))
    monkeypatch.setattr(corpus, "QUESTION", 60)
    model = talking_model()
    assert model.tokenizer is not None
    asked = corpus.ask(model, Template.of(model.tokenizer), 8, torch.Generator().manual_seed(0), "def ")
    start = model.tokenizer.raw("def ")
    assert asked
    assert all(question.ids[: len(start)] == start and len(question.ids) > len(start) for question in asked)


def test_questions_of_like_length_are_answered_together_and_none_is_lost() -> None:
    questions = [Question([0] * (1 + 7 * i % 40), "given") for i in range(100)]
    groups = list(alike(iter(questions), 8))
    assert sorted(len(q.ids) for g in groups for q in g) == sorted(len(q.ids) for q in questions)
    padded = sum(len(g) * max(len(q.ids) for q in g) for g in groups)
    assert padded < 1.15 * sum(len(q.ids) for q in questions)
    lengths = [len(g[0].ids) for g in groups[:8]]
    assert lengths != sorted(lengths)  # in no order, so that a part of them is like the whole
