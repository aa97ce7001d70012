# The machine differs, the lines do not.
"$SLM" doctor --megabytes 16 >out
echo "-> $?"
cut -c1-18 out
grep -c 'equal to the scalar definition' out
"$SLM" doctor --megabytes 16 --json | grep -o '^  "[a-z_]*"\|true'
SLM_ISA=scalar "$SLM" doctor --megabytes 16 | grep '^instruction set'
SLM_ISA=mmx "$SLM" doctor 2>err
echo "-> $? $(grep -c SLM_ISA err)"
