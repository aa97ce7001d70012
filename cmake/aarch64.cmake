# Cross build for aarch64 Linux; programs run under user-mode emulation.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
find_program(EMULATOR NAMES qemu-aarch64-static qemu-aarch64 REQUIRED)
# The loader and the C library must be of one package: with arm64 packages installed both are
# found in the root, otherwise both lie with the cross compiler.
set(CMAKE_CROSSCOMPILING_EMULATOR ${EMULATOR})
if(NOT EXISTS /lib/ld-linux-aarch64.so.1)
    list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L /usr/aarch64-linux-gnu)
endif()
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
