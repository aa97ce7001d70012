/* rope.h - rotation tables of rotary position embeddings.
 *
 * Frequencies are computed once at load, angles once per token and step, all in
 * double precision with our own sin, cos, log and pow (no libm), then rounded to
 * float; so there is one table for every instruction set. */
#ifndef ROPE_H
#define ROPE_H

#include <stdbool.h>
#include <stdint.h>

enum rope_scaling { ROPE_SCALE_NONE, ROPE_SCALE_LINEAR, ROPE_SCALE_YARN, ROPE_SCALE_LONGROPE };

struct rope_params {
    int n_rot;                 /* rotated dimensions, even */
    double base;
    enum rope_scaling scaling;
    double factor;             /* > 0; 1 for none */
    const float *factors;      /* [n_rot / 2] divisors of the frequencies, or NULL */
    double attn_factor;        /* multiplies cos and sin; 1 by default */
    int orig_context;          /* yarn */
    double beta_fast, beta_slow, log_multiplier;  /* yarn: 32, 1, 0 by default */
};

/* Fills freq[n_rot / 2] with the angle per position and *mscale with the factor of
 * cos and sin. */
void rope_freqs(const struct rope_params *p, double *freq, double *mscale);

/* cs[n_rot]: cos then sin of every pair at position pos, times mscale. */
void rope_table(const double *freq, int n_rot, double mscale, int64_t pos, float *cs);

/* The functions behind, also for a test against libm: at most 1 ulp or so off. */
double rope_sin(double x);
double rope_cos(double x);
double rope_log(double x);
double rope_exp(double x);
double rope_pow(double x, double y);

#endif
