#!/bin/sh
# Fails when a file of src/ includes a header of a layer above its own.
#
#   tests/layers.sh [SOURCE_TREE]
set -eu

# Lines "FILE:LINE: LAYER must not include HEADER" for what is forbidden below $1/src.
violations()
{
    (cd "$1" && find src -name '*.[ch]' | sort | xargs awk '
    BEGIN {
        # What each layer may include.  The public header is for those who use the
        # library (api, app, server) and for base/error.h, which has its error type.
        may["base"]   = "base"
        may["gguf"]   = "base gguf"
        may["quant"]  = "base gguf quant"
        may["kern"]   = "base gguf quant kern"
        may["model"]  = "base gguf quant kern model"
        may["run"]    = "base gguf quant kern model run"
        may["text"]   = "base gguf text"
        may["guide"]  = "base gguf text guide"
        may["api"]    = "base gguf quant kern model run text guide api slm.h"
        may["server"] = "base server slm.h"
        may["app"]    = "base server app slm.h"
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
        split($0, part, /[<>"]/)
        header = part[2]
        split(header, dirs, "/")
        split(FILENAME, path, "/")
        layer = path[2]
        # Headers of the system and of libraries come in angle brackets.
        if ($0 ~ /</ && !(dirs[1] in may) && header != "slm.h") next
        if (FILENAME == "src/base/error.h" && header == "slm.h") next
        if (index(" " may[layer] " ", " " dirs[1] " ") == 0)
            print FILENAME ":" FNR ": " layer " must not include " header
    }')
}

# The check must see what it is for: a tree with one forbidden include of each kind.
self_test()
{
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    mkdir -p "$tree/src/base" "$tree/src/kern" "$tree/src/text" "$tree/src/app" "$tree/src/run"
    printf '#include "kern/kern.h"\n'          > "$tree/src/base/a.c"
    printf '#include "slm.h"\n'                > "$tree/src/base/error.h"
    printf '#include <stdio.h>\n#include "slm.h"\n' > "$tree/src/kern/b.c"
    printf '  #  include "model/model.h"\n'    > "$tree/src/text/c.h"
    printf '#include "run/session.h"\n#include "slm.h"\n#include "base/buf.h"\n' \
                                               > "$tree/src/app/d.c"
    printf '#include "kv.h"\n#include "../api/x.h"\n#include <text/tok.h>\n' > "$tree/src/run/e.c"
    found=$(violations "$tree" | sort)
    expected='src/app/d.c:1: app must not include run/session.h
src/base/a.c:1: base must not include kern/kern.h
src/kern/b.c:2: kern must not include slm.h
src/run/e.c:1: run must not include kv.h
src/run/e.c:2: run must not include ../api/x.h
src/run/e.c:3: run must not include text/tok.h
src/text/c.h:1: text must not include model/model.h'
    if [ "$found" != "$expected" ]; then
        echo "the check itself is broken; on a tree with known mistakes it found:"
        echo "$found"
        exit 1
    fi
}

self_test
found=$(violations "${1:-.}")
if [ -n "$found" ]; then
    echo "$found"
    echo "Layers are described in this script; include downward only,"
    echo "with the layer's name in the path."
    exit 1
fi
echo "all includes point downward"
