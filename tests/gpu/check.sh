#!/usr/bin/env bash
# Checks and measures DraftScope on a CUDA machine in about eight minutes, without network:
#   bash tests/gpu/check.sh OUT
# OUT gets one JSON file or log per part, and a folder of traces; a part that fails is named at the end and stops no other.
# DEVICE=cpu QUICK=1 tries the script itself on any machine; PYTHON names the interpreter.
set -u
out=${1:?usage: bash tests/gpu/check.sh OUT}
device=${DEVICE:-cuda}
python=${PYTHON:-python}
quick=${QUICK:-}
mkdir -p "$out/traces"
failed=""

part() { # NAME SECONDS COMMAND…: runs it with a limit, keeps what it says, remembers whether it failed
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  local begin=$SECONDS
  timeout "$limit" "$@" >"$out/$name.log" 2>&1 || failed="$failed $name"
  tail -n 25 "$out/$name.log"
  echo "== $name took $((SECONDS - begin)) s"
}

if [ -n "$quick" ]; then
  context=64 prompts=1 few_prompts=1 tokens=8 few="--rounds 1 --lengths 4,8,16" whole="" only="--only story"
else
  context=64,256,1024 prompts=10 few_prompts=5 tokens=96 few="" whole="--whole --dtype bf16" only=""
fi

# What expands to several words, or none, stands unquoted on purpose.
part lossless 50 "$python" -m spec_core.check --device "$device"
part lossless-graphs 30 env DRAFTSCOPE_GRAPHS=1 "$python" -m spec_core.check --device "$device"
part latency 60 "$python" -m spec_core.measure --device "$device" --context "$context" \
  $few --json "$out/latency.jsonl.gz"
part latency-graphs 40 env DRAFTSCOPE_GRAPHS=1 "$python" -m spec_core.measure --device "$device" --context 256 \
  --rounds 5 --lengths 4,8,16 --json "$out/latency-graphs.jsonl.gz"
part latency-qwen3-4b 100 "$python" -m spec_core.measure --device "$device" --shape qwen3-4b $whole \
  $few --json "$out/latency-qwen3-4b.jsonl.gz"
part bench 70 "$python" -m spec_core.bench --device "$device" --prompts assets/prompts/bench.jsonl \
  --limit "$prompts" --tokens "$tokens" --methods all --json "$out/bench.json"
part bench-graphs 60 env DRAFTSCOPE_GRAPHS=1 "$python" -m spec_core.bench --device "$device" \
  --prompts assets/prompts/bench.jsonl --limit "$few_prompts" --tokens "$tokens" --methods plain,eagle3,dflash \
  --json "$out/bench-graphs.json"
part race 70 "$python" -m spec_core.record --device "$device" --tokens "$tokens" \
  $only --out "$out/traces"

(cd "$out" && tar czf traces.tar.gz traces && rm -r traces)
if [ -n "$failed" ]; then
  echo "failed:$failed"
  exit 1
fi
echo "all parts are done; results are in $out"
