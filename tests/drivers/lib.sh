# The checks' shell: what psql/run and pgbench/run share. Owns the counting of checks; knows nothing of the tools.
# A check is a function; its output is shown only when it fails. `set -e` stops a check at its first failing command.

# shellcheck shell=bash

: "${DATABASE_URL:?}"
work_dir=$(mktemp -d)
failed=0
trap 'rm -rf "$work_dir"' EXIT

# check NAME: runs the function NAME in a subshell of its own.
check() {
    local status
    ( set -e; "$1" ) >"$work_dir/check.log" 2>&1
    status=$?
    if [ "$status" -eq 0 ]; then
        echo "ok $1"
    else
        failed=1
        echo "FAILED $1: $(tail -n 4 "$work_dir/check.log" | tr '\n' ' ')"
        cat "$work_dir/check.log" >&2
    fi
}

fail() {
    echo "$*"
    exit 1
}

# expect GOT WANTED
expect() {
    [ "$1" = "$2" ] || fail "expected '${2:0:200}', got '${1:0:200}'"
}

# expect_in TEXT PART
expect_in() {
    case "$1" in
        *"$2"*) ;;
        *) fail "expected '$2' in '${1:0:300}'" ;;
    esac
}

# fails COMMAND...: `set -e` would let a plain `! COMMAND` pass either way.
fails() {
    if "$@"; then fail "expected '$*' to fail"; fi
}
