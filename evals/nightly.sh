#!/bin/sh
# A night: measures, draws all nights so far, and compares with the night before.
#
#   evals/nightly.sh FOLDER NAME [options of `eval nightly`]
#
# FOLDER keeps what nights leave: rows/NAME.jsonl, the workspace, site/. Begun again with the same NAME it goes on where
# it was ended. PLAN names another plan than evals/nightly.toml, PYTHON another interpreter than .venv's.
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

"$python" -m pgo_agent.agent.cli.main eval nightly "$plan" -o "$rows" --store "$folder/workspace" "$@"
"$python" -m pgo_agent.agent.cli.main eval site rows/*.jsonl -o site
before=$(grep -l '"what": "run"' rows/*.jsonl | sort -V | grep -Fxv "rows/$name.jsonl" | tail -n 1) # with a row
if [ -n "$before" ]; then
    "$python" -m pgo_agent.agent.cli.main eval compare "$before" "$rows"
fi
