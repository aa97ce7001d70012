#!/bin/sh
# Fails when an object of the numeric core calls the mathematics library, whose results
# differ between systems.  Only the exactly rounded fma and sqrt may come from there.
#
#   tests/symbols.sh NM CC OBJECT...
set -eu

nm=$1
cc=$2
shift 2

# Everything of math.h and fenv.h in its three precisions, with the names that
# compilers put in its place (reentrant, finite-only, vector, exp10 and sincos).
stems='exp exp2 exp10 pow10 expm1 log log2 log10 log1p logb ilogb pow sin cos tan sincos asin
acos atan atan2 sinh cosh tanh asinh acosh atanh sinpi cospi tanpi erf erfc tgamma lgamma gamma
cbrt hypot fmod remainder remquo drem floor ceil round roundeven trunc rint nearbyint lrint llrint
lround llround ldexp frexp scalb scalbn scalbln modf significand nextafter nexttoward fdim fmax
fmin fabs copysign nan j0 j1 jn y0 y1 yn'
pattern=$(echo $stems | tr ' ' '|')
pattern="^(_*(($pattern)[fl]?(_r)?(_finite)?)|fe(set|get|hold|update|raise|clear|test)[a-z]*|_ZGV.*|fma[l]|sqrtl)\$"

# "OBJECT: SYMBOL" for every forbidden import of the objects.
violations()
{
    for object; do
        "$nm" -u "$object" | awk '{ print $NF }' | sed 's/@.*//' | grep -E "$pattern" |
            sed "s|^|$object: |" || true
    done
}

# The check must see what it is for.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/bad.c" <<'END'
float expf(float);
double pow(double, double);
float fmaf(float, float, float);
float call(float x);
float call(float x) { return fmaf(expf(x), (float)pow(x, 3.5), x); }
END
"$cc" -O1 -fno-builtin -c "$dir/bad.c" -o "$dir/bad.o"
found=$(violations "$dir/bad.o" | sed 's/.*: //' | sort | tr '\n' ' ')
if [ "$found" != "expf pow " ]; then
    echo "the check itself is broken; in an object that calls expf and pow it found: $found"
    exit 1
fi

core=''
for layer in quant kern model run; do
    n=0
    for object; do
        case $object in
        */src/$layer/*) core="$core $object"; n=$((n + 1)) ;;
        esac
    done
    if [ $n = 0 ]; then
        echo "no objects of src/$layer were given"
        exit 1
    fi
done
# shellcheck disable=SC2086
found=$(violations $core)
if [ -n "$found" ]; then
    echo "$found"
    echo "Use kern/math16.h, or the double-precision helpers of kern/rope.c."
    exit 1
fi
echo "$(echo $core | wc -w) objects call nothing but fma and sqrt"
