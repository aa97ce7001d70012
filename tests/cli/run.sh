#!/bin/sh
# run.sh - runs one command-line case and compares what came out.
#
#   run.sh CASE.sh SLM DATA
#
# CASE.sh runs in an empty folder with $SLM, the program, and $DATA, the folder of test
# data; `models` there is a link to $DATA/models.  Standard output, standard error and
# exit code must be those in CASE.out, CASE.err and CASE.exit; a missing file stands for
# nothing and for 0.  A line "*" in CASE.err stands for any lines.  With UPDATE=1 the
# files are written instead.
set -u

case_file=$1
SLM=$2
DATA=$3
export SLM DATA
# Names of models mean what is in an empty cache, and nothing is downloaded.
export HF_HUB_OFFLINE=1
unset HF_HUB_CACHE HF_ENDPOINT HF_TOKEN
base=${case_file%.sh}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/work"
export HF_HOME="$dir/hub"
ln -s "$DATA/models" "$dir/work/models"

(cd "$dir/work" && exec sh "$case_file") >"$dir/out" 2>"$dir/err" </dev/null
code=$?

# Compares $dir/$1 with $base.$1, or writes the latter.
check()
{
    if test "${UPDATE:-}" = 1; then
        rm -f "$base.$1"
        test ! -s "$dir/$1" || cp "$dir/$1" "$base.$1"
        return 0
    fi
    test -f "$base.$1" || : >"$dir/nothing"
    expected=$dir/nothing
    test ! -f "$base.$1" || expected=$base.$1
    if grep -qx '\*' "$expected"; then
        grep -vx '\*' "$expected" >"$dir/expected"
        grep -xFf "$dir/expected" "$dir/$1" >"$dir/got"
        diff -u "$dir/expected" "$dir/got"
    else
        diff -u "$expected" "$dir/$1"
    fi
}

failed=0
check out || failed=1
check err || failed=1
test "$code" = 0 || echo "$code" >"$dir/exit"
test "$code" != 0 || : >"$dir/exit"
check exit || failed=1
exit $failed
