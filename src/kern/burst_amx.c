/* burst_amx.c - tile products: four accumulators over two by two operands. */
#include "kern/burst.h"

#include <immintrin.h>
#include <string.h>

uint64_t burst_amx(int n)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t colsb[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    uint8_t ones[1024] __attribute__((aligned(64)));

    memset(ones, 1, sizeof ones);
    for (int i = 0; i < 8; i++) {
        config.colsb[i] = 64;
        config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
    __asm__ volatile("" : : "m"(ones), "m"(config));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
    for (int i = 0; i < n; i++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
    return (uint64_t)n * 4 * 16 * 16 * 64;
}
