#!/bin/sh
# The gate of a pull request on several kernels: `pgo-agent check FILE --against BASE` for each. action.yml runs it.
#
# By variables: FILES, patterns of paths, one a line. AGAINST, as the command takes it: git:REV, or a file. PGO_AGENT,
# the command. MARKDOWN, the file that gets all comments; JUNIT, one that gets JUnit XML. OPTIONS, one a line, for every
# check. A file that the base does not have is new, and is judged alone; one that only the base has is named as deleted.
# All files are looked at; the exit code is 1 if any of them fails with 1, else the highest of theirs.
set -u
: "${FILES:?names no file}" "${AGAINST:?names no base}" "${PGO_AGENT:=pgo-agent}" "${MARKDOWN:=kernels.md}" "${JUNIT:=}"
work=$(mktemp -d) && : >"$MARKDOWN" && : >"$work/suites" || exit 3
trap 'rm -rf "$work"' EXIT
worst=0 found=0

base() { # the commit of the base, by a folder of the repository; fails where the base is a file, or is not there
    revision=${AGAINST#git:}
    [ "$revision" != "$AGAINST" ] || return 1
    git -C "$1" rev-parse --verify --quiet --end-of-options "$revision^{commit}"
}

is_new() { # whether the base is a revision that is there, and has no such file
    folder=$(dirname -- "$1")
    top=$(git -C "$folder" rev-parse --show-prefix) && commit=$(base "$folder") || return 1
    ! git -C "$folder" cat-file -e "$commit:$top$(basename -- "$1")" 2>/dev/null
}

name_deleted() { # what a revision has under one of the patterns, and nobody has now
    commit=$(base .) || return 0
    set -f
    for name in $(git -c core.quotepath=off ls-tree -r --name-only "$commit"); do
        for pattern in $FILES; do
            [ ! -e "$name" ] && [ "$(dirname -- "$name")" = "$(dirname -- "$pattern")" ] || continue
            case $name in $pattern)
                found=1
                echo "== $name: deleted"
                printf '### `%s`: deleted\n\n' "$name" >>"$MARKDOWN"
                break ;;
            esac
        done
    done
    set +f
}

judge() { # one file; its comment becomes $work/comment
    rm -f "$work/comment" "$work/junit"
    set -- "$1" $OPTIONS
    file=$1
    shift
    if is_new "$file"; then
        "$PGO_AGENT" check --target "$file" "$@" -- "$file" >"$work/said" 2>&1
        code=$?
        cat "$work/said"
        printf '### `%s`: new, judged alone\n\n```\n%s\n```\n' "$file" "$(grep -E -A 8 '^[a-z_]+: ' "$work/said" | head -n 12)" \
            >"$work/comment"
        name_new "$file" "$code" >"$work/junit"
    else
        "$PGO_AGENT" check --against "$AGAINST" --markdown "$work/comment" --junit "$work/junit" "$@" -- "$file"
        code=$?
    fi
}

name_new() { # JUnit XML of a file that was judged alone, after a first line, by its exit code
    echo
    class=$(printf %s "$1" | sed 's/&/\&amp;/g; s/</\&lt;/g; s/"/\&quot;/g')
    [ "$2" -eq 0 ] && failures=0 || failures=1
    printf '<testsuite name="pgo-agent check" tests="1" failures="%s"><testcase classname="%s" name="results">' "$failures" "$class"
    [ "$2" -eq 0 ] || printf '<failure message="new, and not right: exit code %s"/>' "$2"
    echo '</testcase></testsuite>'
}

IFS='
'
OPTIONS=${OPTIONS:-}
for file in $FILES; do
    [ -f "$file" ] || continue # a pattern that fits nothing
    found=1
    echo "== $file"
    judge "$file"
    [ ! -f "$work/comment" ] || { cat "$work/comment" && echo; } >>"$MARKDOWN"
    [ ! -f "$work/junit" ] || tail -n +2 "$work/junit" >>"$work/suites"
    if [ "$code" -eq 1 ] || { [ "$worst" -ne 1 ] && [ "$code" -gt "$worst" ]; }; then worst=$code; fi
done
name_deleted
if [ -n "$JUNIT" ]; then
    { printf '<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n' && cat "$work/suites" && echo '</testsuites>'; } >"$JUNIT"
fi
if [ "$found" -eq 0 ]; then
    echo "error: no file is called as one of: $FILES" >&2
    exit 2
fi
exit "$worst"
