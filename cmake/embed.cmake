# Writes a C array of a file's bytes: cmake -DIN=FILE -DOUT=FILE.c -DNAME=name -P embed.cmake
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" n)
math(EXPR n "${n} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(...................................................................................................)," "\\1,\n" bytes "${bytes}")
file(WRITE ${OUT} "#include \"server/web.h\"\nconst unsigned char ${NAME}[] = {\n${bytes}\n};\n"
    "const size_t ${NAME}_bytes = ${n};\n")
