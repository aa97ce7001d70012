/* logprob.c - the log-softmax of a row of logits and its largest entries. */
#include "run/logprob.h"

/* Logits handled at a time: their exponentials fit the stack, and a block whose maximum is no
 * candidate costs a comparison only. */
enum { BLOCK = 256 };

static int block_end(int n, int b)
{
    return n - b < BLOCK ? n : b + BLOCK;
}

/* Sixteen chains over all blocks, folded by halves. */
struct logprob_base logprob_base(const struct kern *k, const float *logits, int n)
{
    struct logprob_base base = { k->max(logits, n), 0 };
    double lane[16] = {0};
    float sum, p[BLOCK];

    for (int b = 0; b < n; b += BLOCK) {
        const int m = block_end(n, b) - b;
        for (int i = 0; i < m; i++) {
            p[i] = logits[b + i] - base.max;
        }
        k->unary[UNARY_EXP](p, p, m);
        for (int i = 0; i < m; i++) {
            lane[i % 16] += (double)p[i];
        }
    }
    for (int h = 8; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            lane[i] += lane[i + h];
        }
    }
    sum = (float)lane[0];
    k->unary[UNARY_LOG](&base.log_sum, &sum, 1);
    return base;
}

int logprob_top(const struct kern *k, struct logprob_base base, const float *logits, int n,
                slm_logprob *top, int n_top)
{
    int count = 0;

    if (n_top <= 0) {
        return 0;
    }
    for (int b = 0; b < n; b += BLOCK) {
        const int end = block_end(n, b);
        if (count == n_top && !(k->max(logits + b, end - b) > top[count - 1].logprob)) {
            continue;
        }
        for (int i = b; i < end; i++) {
            if (count == n_top && !(logits[i] > top[count - 1].logprob)) {
                continue;
            }
            int at = count < n_top ? count++ : count - 1;
            for (; at > 0 && logits[i] > top[at - 1].logprob; at--) {
                top[at] = top[at - 1];
            }
            top[at] = (slm_logprob){ i, logits[i] };
        }
    }
    for (int i = 0; i < count; i++) {
        top[i].logprob = logprob_of(base, top[i].logprob);
    }
    return count;
}
