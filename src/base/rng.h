/* rng.h - counter-based random numbers.
 *
 * A number is a function of its key alone, so a draw depends neither on what was
 * drawn before nor on what else runs.  The mixing function is the finaliser of
 * splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
 * Generators, 2014). */
#ifndef RNG_H
#define RNG_H

#include <stdint.h>

static inline uint64_t rng_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* 64 random bits for (seed, choice, position). */
static inline uint64_t rng_bits(uint64_t seed, uint64_t choice, uint64_t position)
{
    return rng_mix(rng_mix(rng_mix(seed) ^ choice) ^ position);
}

/* [0, 1) with 53 bits. */
static inline double rng_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* A plain stream of numbers for tests and tools. */
struct rng { uint64_t state; };

static inline uint64_t rng_next(struct rng *r)
{
    return rng_mix(r->state++);
}

#endif
