#!/bin/sh
# A night: measures, draws all nights so far, and compares with the night before.
#
#   evals/nightly.sh FOLDER NAME [options of `eval nightly`]
#
# FOLDER keeps what nights leave: rows/NAME.jsonl, field/NAME/ (kernels of public packages), the workspace, site/. Begun
# again with the same NAME it goes on where it was ended. PLAN names another plan than evals/nightly.toml, PYTHON another
# interpreter than .venv's. FIELD names kernels or packages of the field suite; none: no kernel of it.
# Nothing is installed or fetched. It ends with 1 when something became slower; other codes are those of `eval nightly`.
set -eu
folder=$1 name=$2
shift 2
plan=$(realpath "${PLAN:-$(dirname "$0")/nightly.toml}")
mkdir -p "$folder/rows"
folder=$(realpath "$folder")
rows=$folder/rows/$name.jsonl

# The code of this very checkout, whatever is installed.
cd "$(dirname "$0")/.."
mkdir -p build/types
ln -sfn ../.. build/types/pgo_agent
export PYTHONPATH="$PWD/build/types"
python=${PYTHON:-$PWD/.venv/bin/python}
cd "$folder"

evaluate() {
    "$python" -m pgo_agent.agent.cli.main eval "$@"
}

slower=0
compare() { # the rows of this night, then those of all nights
    own=$1
    shift
    before=$(grep -ls '"what": "run"' "$@" | sort -V | grep -Fxv "$own" | tail -n 1) # with a row
    if [ -n "$before" ] && [ -f "$own" ]; then
        code=0
        evaluate compare "$before" "$own" || code=$?
        [ "$code" -le 1 ] || exit "$code"
        [ "$code" -eq 0 ] || slower=1
    fi
}

evaluate nightly "$plan" -o "$rows" --store "$folder/workspace" "$@"
if [ "${FIELD-}" != none ]; then
    code=0 # 1: a kernel has no target, which the page says
    evaluate field ${FIELD-} --no-check -o "field/$name" --store "$folder/workspace" "$@" || code=$?
    [ "$code" -le 1 ] || exit "$code"
fi
set -- rows/*.jsonl
for file in field/*/targets.jsonl field/*/rows.jsonl; do
    [ ! -f "$file" ] || set -- "$@" "$file"
done
evaluate site "$@" -o site
compare "rows/$name.jsonl" rows/*.jsonl
compare "field/$name/rows.jsonl" field/*/rows.jsonl
exit "$slower"
