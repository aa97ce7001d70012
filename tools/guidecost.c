/* guidecost.c - what a guide costs beside the model: processor time for each token.
 *
 *   guidecost MODEL.gguf [CASE]
 *
 * Reads only the vocabulary.  For each case the guide is made and a written answer is followed
 * token by token, as a sampler would.  `first` is the mean time a token of the first answer under
 * a guide needs, `again` that of the second, for which the masks are there already; both in
 * microseconds, with the median and the longest of the first.  `mask` is what the sampler adds:
 * a greedy draw under the guide less one without and less the guide's own time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "gguf/gguf.h"
#include "guide/guide.h"
#include "run/sample.h"

typedef bool reader(struct grammar *g, const char *text, size_t n, gram_expr *root,
                    slm_error *err);

static bool any_object(struct grammar *g, const char *text, size_t n, gram_expr *root,
                       slm_error *err)
{
    (void)text;
    (void)n;
    return guide_json(g, root, err);
}

#define NESTED_ANSWER                                                                             \
    "{\n  \"title\": \"A walk along the coast\",\n  \"author\": {\"name\": \"Marie Curie\", "     \
    "\"born\": 1867, \"email\": \"marie@example.org\"},\n  \"tags\": [\"travel\", \"sea\", "      \
    "\"cliffs\"],\n  \"rating\": 4.5,\n  \"chapters\": [{\"heading\": \"The harbour\", "           \
    "\"pages\": 12}, {\"heading\": \"Gulls \\\"at dawn\\\"\", \"pages\": 7}],\n  \"published\": " \
    "true\n}"

static const struct {
    const char *name;
    reader *read;
    const char *language, *answer;
} cases[] = {
    { "string", guide_schema, "{\"type\":\"object\",\"properties\":{\"text\":"
      "{\"type\":\"string\"}},\"required\":[\"text\"]}",
      "{\"text\": \"The quick brown fox jumps over the lazy dog; it was not, as many have said, "
      "an accident. He said \\\"no\\\" twice\\nand left. Caf\xC3\xA9s open at 7:30, don't be late! "
      "\xE6\x9D\xB1\xE4\xBA\xAC is a city of 13,960,000 people (2021), isn't it?\"}" },
    { "bounded", guide_schema, "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\","
      "\"minLength\":3,\"maxLength\":200}},\"required\":[\"text\"]}",
      "{\"text\": \"The quick brown fox jumps over the lazy dog; it was not, as many have said, "
      "an accident. He said \\\"no\\\" twice\\nand left.\"}" },
    { "numbers", guide_schema, "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":"
      "{\"x\":{\"type\":\"number\"},\"n\":{\"type\":\"integer\",\"minimum\":-500,\"maximum\":"
      "12345}},\"required\":[\"x\",\"n\"]}}",
      "[{\"x\": 3.14159, \"n\": 42}, {\"x\": -0.5e-3, \"n\": -499}, {\"x\": 1000000, \"n\": "
      "12345}, {\"x\": 17, \"n\": 0}, {\"x\": 271.828, \"n\": 9999}]" },
    { "enum", guide_schema, "{\"type\":\"object\",\"properties\":{\"unit\":{\"enum\":[\"celsius\","
      "\"fahrenheit\",\"kelvin\"]},\"mood\":{\"enum\":[\"good\",\"bad\",\"indifferent\"]}},"
      "\"required\":[\"unit\",\"mood\"]}",
      "{\"unit\": \"fahrenheit\", \"mood\": \"indifferent\"}" },
    { "nested", guide_schema, "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":"
      "\"string\"},\"author\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
      "\"born\":{\"type\":\"integer\",\"minimum\":1000,\"maximum\":2100},\"email\":{"
      "\"type\":\"string\",\"format\":\"email\"}},\"required\":[\"name\",\"born\"]},\"tags\":{"
      "\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":20},\"maxItems\":8},"
      "\"rating\":{\"type\":\"number\",\"minimum\":0,\"maximum\":5},"
      "\"chapters\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
      "\"heading\":{\"type\":\"string\"},\"pages\":{\"type\":\"integer\"}},\"required\":"
      "[\"heading\",\"pages\"]}},\"published\":{\"type\":\"boolean\"}},"
      "\"required\":[\"title\",\"author\",\"tags\",\"rating\",\"chapters\",\"published\"]}",
      NESTED_ANSWER },
    { "pattern", guide_schema, "{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"string\","
      "\"pattern\":\"^[A-Z][a-z]+( [A-Z][a-z]+)* [0-9]{2,5}$\"},\"at\":{\"type\":\"string\","
      "\"format\":\"date-time\"}},\"required\":[\"code\",\"at\"]}",
      "{\"code\": \"Baker Street London West 2210\", \"at\": \"2026-10-05T14:30:15Z\"}" },
    { "object", any_object, "", NESTED_ANSWER },
    { "regex", guide_regex, "[a-z]+@[a-z]+\\.(com|org|net)( \\([^()]*\\))?",
      "someone@example.org (the one who wrote, in 2021, about gulls and harbours)" },
    { "prose", guide_regex, "(.|\\n)*", "The quick brown fox jumps over the lazy dog; it was not, "
      "as many have said, an accident.\nHe said \"no\" twice and left." },
    { "grammar", guide_gbnf, "root ::= line+\nline ::= name \" = \" expr \"\\n\"\n"
      "name ::= [a-z_]+\nexpr ::= term (\" \" [-+*/] \" \" term)*\n"
      "term ::= name | [0-9]+ | \"(\" expr \")\"\n",
      "total = 2 + count * (width - 17)\nresult_value = total / 2\nx = ((a + b) * (c - d))\n" },
};

enum { TOKENS_MAX = 4096 };

struct bench {
    const struct vocab *v;
    struct guide_vocab *t;
    struct sampler *sampler;
    float *logits;
    uint64_t *bits;
    int32_t ids[TOKENS_MAX];
    size_t n;
    double us[TOKENS_MAX];
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void check(bool ok, const slm_error *err)
{
    if (!ok) {
        fprintf(stderr, "guidecost: %s\n", err->msg);
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The mean of a token, with the end of the answer; b->us has all of them. */
static double follow(struct bench *b, struct guide *guide)
{
    slm_error err = {0};
    struct guide_matcher *m = guide_matcher_new(guide, &err);
    double sum = 0;

    check(m != NULL, &err);
    for (size_t i = 0; i <= b->n; i++) {
        const double before = now_us();
        check(guide_allow(m, b->ids, i, b->bits, &err), &err);
        b->us[i] = now_us() - before;
        sum += b->us[i];
        if (i < b->n && !(b->bits[b->ids[i] / 64] >> b->ids[i] % 64 & 1)) {
            fprintf(stderr, "guidecost: token %zu (id %d) of the answer is not allowed\n", i,
                    (int)b->ids[i]);
            exit(1);
        }
    }
    guide_matcher_free(m);
    return sum / (double)(b->n + 1);
}

/* A draw at each token of the answer, under the guide or without one. */
static double draws(struct bench *b, struct guide *guide)
{
    slm_error err = {0};
    struct guide_matcher *m = guide ? guide_matcher_new(guide, &err) : NULL;
    const struct constraint c = { .allow = guide_allow, .arg = m };
    int32_t id;

    check(sampler_constrain(b->sampler, m ? &c : NULL, &err), &err);
    const double before = now_us();
    for (size_t i = 0; i <= b->n; i++) {
        check(sampler_draw(b->sampler, b->logits, b->ids, i, &id, &err), &err);
    }
    const double us = (now_us() - before) / (double)(b->n + 1);
    sampler_constrain(b->sampler, NULL, &err);
    guide_matcher_free(m);
    return us;
}

static void measure(struct bench *b, size_t i)
{
    slm_error err = {0};
    struct grammar g;
    gram_expr root = GRAM_NONE;
    struct ids ids = {0};

    check(tok_encode(b->v, cases[i].answer, strlen(cases[i].answer), false, false, &ids, &err),
          &err);
    b->n = ids.n < TOKENS_MAX ? ids.n : TOKENS_MAX - 1;
    memcpy(b->ids, ids.data, b->n * sizeof *b->ids);
    ids_deinit(&ids);
    const double before = now_us();
    gram_init(&g);
    check(cases[i].read(&g, cases[i].language, strlen(cases[i].language), &root, &err), &err);
    struct guide *guide = guide_new(b->t, &g, root, &err);
    check(guide != NULL, &err);
    const double create = now_us() - before;
    const double first = follow(b, guide);
    qsort(b->us, b->n + 1, sizeof *b->us, by_value);
    const double median = b->us[(b->n + 1) / 2], longest = b->us[b->n];
    const double again = follow(b, guide);
    const double mask = draws(b, guide) - draws(b, NULL) - again;
    printf("%-8s %9.0f %7zu %8.1f %8.1f %8.0f %8.1f %8.1f\n", cases[i].name, create, b->n + 1,
           first, median, longest, again, mask);
    guide_free(guide);
}

int main(int argc, char **argv)
{
    static struct bench b;
    slm_error err = {0};

    if (argc < 2) {
        fprintf(stderr, "usage: guidecost MODEL.gguf [CASE]\n");
        return 2;
    }
    struct gguf *file = gguf_open(argv[1], &err);
    b.v = file ? vocab_new(file, &err) : NULL;
    check(b.v != NULL, &err);
    const double before = now_us();
    b.t = guide_vocab_new(b.v, &err);
    check(b.t != NULL, &err);
    const size_t n_vocab = (size_t)vocab_size(b.v);
    printf("%zu tokens, their trie %.0f ms; microseconds:\n", n_vocab, (now_us() - before) / 1e3);
    const struct sample_params greedy = { .top_p = 1, .repeat_penalty = 1, .typical_p = 1,
                                          .dry_base = 1.75f, .dry_allowed = 2 };
    b.sampler = sampler_new(&greedy, (int)n_vocab, kern_get(cpu_isa_best()), &err);
    check(b.sampler != NULL, &err);
    b.logits = mem_alloc(n_vocab, sizeof *b.logits);
    b.bits = mem_alloc((n_vocab + 63) / 64, sizeof *b.bits);
    if (!b.logits || !b.bits) {
        return 1;
    }
    struct rng rng = { 1 };
    for (size_t i = 0; i < n_vocab; i++) {
        b.logits[i] = (float)(rng_next(&rng) >> 40) * 0x1p-20f;
    }
    printf("%-8s %9s %7s %8s %8s %8s %8s %8s\n", "case", "create", "tokens", "first", "median",
           "longest", "again", "mask");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (argc < 3 || strcmp(argv[2], cases[i].name) == 0) {
            measure(&b, i);
        }
    }
    mem_free(b.logits);
    mem_free(b.bits);
    sampler_free(b.sampler);
    guide_vocab_free(b.t);
    return 0;
}
