#!/bin/sh
# install.sh - installs into a scratch folder and uses the result as a stranger would:
# the header's own example as C11 and C++, examples/hello.c against the static and the
# shared library through pkg-config.
#
#   install.sh SOURCE BUILD CC CXX "FLAGS" MODEL
#
# CXX may be empty; FLAGS are those that the library itself needs (sanitizers).
set -eu

source=$1 build=$2 cc=$3 cxx=$4 flags=$5 model=$6
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail()
{
    echo "install.sh: $*" >&2
    exit 1
}

if ! cmake --install "$build" --prefix "$dir/prefix" >"$dir/log" 2>&1; then
    cat "$dir/log"
    fail "install failed"
fi
for file in bin/slm include/slm.h; do
    test -f "$dir/prefix/$file" || fail "$file is not installed"
done
pc=$(find "$dir/prefix" -name slm.pc)
test -n "$pc" || fail "slm.pc is not installed"
libdir=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH

version=$("$dir/prefix/bin/slm" --version | sed -n 's/^slm //p')
test "$(pkg-config --modversion slm)" = "$version" ||
    fail "slm.pc and slm --version disagree"

# Nothing but slm_ names is visible in either library.
for file in libslm.a libslm.so; do
    case $file in
    *.a) names=$(nm -g --defined-only "$libdir/$file" 2>/dev/null) ;;
    *) names=$(nm -D --defined-only "$libdir/$file") ;;
    esac
    strange=$(echo "$names" |
        awk 'NF == 3 && $3 !~ /^(slm_|__|_init$|_fini$|_edata$|_end$)/ { print $3 }')
    test -z "$flags" || strange=  # sanitizers add names of their own
    test -z "$strange" || fail "$file shows other names: $strange"
done
test -L "$libdir/libslm.so" || fail "libslm.so is no link to a version"

# The example in the header.
sed -n 's/^ \* \{0,1\}//; s/^    //; /^#include <slm.h>/,/^}/p' "$dir/prefix/include/slm.h" \
    >"$dir/example.c"
grep -q 'int main' "$dir/example.c" || fail "the header's example is missing"
cp "$dir/example.c" "$dir/example.cc"
"$cc" $flags -std=c11 -pedantic -Wall -Wextra -Werror "$dir/example.c" -o "$dir/example" \
    $(pkg-config --cflags --libs slm) -Wl,-rpath,"$libdir"
"$dir/example" "$model" >"$dir/example.out"
if test -n "$cxx"; then
    "$cxx" $flags -std=c++11 -pedantic -Wall -Wextra -Werror "$dir/example.cc" \
        -o "$dir/example-cc" \
        $(pkg-config --cflags --libs slm) -Wl,-rpath,"$libdir"
    "$dir/example-cc" "$model" >"$dir/example-cc.out"
    cmp "$dir/example.out" "$dir/example-cc.out" || fail "C and C++ disagree"
else
    echo "install.sh: no C++ compiler, so the header is not tried as C++"
fi

# hello.c, shared and static.
"$cc" $flags -std=c11 -Wall -Wextra -Werror "$source/examples/hello.c" -o "$dir/shared" \
    $(pkg-config --cflags --libs slm) -Wl,-rpath,"$libdir"
mkdir "$dir/static-lib"
cp "$libdir/libslm.a" "$dir/static-lib"
"$cc" $flags -std=c11 -Wall -Wextra -Werror "$source/examples/hello.c" -o "$dir/static" \
    $(pkg-config --cflags slm) -L"$dir/static-lib" $(pkg-config --static --libs-only-l slm) \
    -pthread -lm
"$dir/shared" "$model" "Once upon a time" >"$dir/shared.out"
"$dir/static" "$model" "Once upon a time" >"$dir/static.out"
test -s "$dir/shared.out" || fail "hello says nothing"
cmp "$dir/shared.out" "$dir/static.out" || fail "static and shared library disagree"
"$dir/prefix/bin/slm" run "$model" --raw --quiet -n 100 "Once upon a time" >"$dir/slm.out"
cmp "$dir/shared.out" "$dir/slm.out" || fail "hello and slm run disagree"

# batch.c: alone and beside another prompt it says what slm run says.
"$cc" $flags -std=c11 -Wall -Wextra -Werror "$source/examples/batch.c" -o "$dir/batch" \
    $(pkg-config --cflags --libs slm) -Wl,-rpath,"$libdir"
"$dir/batch" "$model" "Once upon a time" >"$dir/batch.out"
{
    echo "> Once upon a time"
    "$dir/prefix/bin/slm" run "$model" --raw --quiet -n 60 "Once upon a time"
} >"$dir/slm.out"
cmp "$dir/batch.out" "$dir/slm.out" || fail "batch and slm run disagree"
"$dir/batch" "$model" "Once upon a time" "Twice" >"$dir/batch.two"
test "$(grep -c '^> Once upon a time$' "$dir/batch.two")" = 1 || fail "batch loses an answer"

if "$dir/static" "$dir/none.gguf" x 2>"$dir/err"; then
    fail "hello accepts a missing file"
fi
grep -q none.gguf "$dir/err" || fail "the error does not name the file"
echo "install.sh: static, shared and pkg-config work"
