/* cmd_perplexity.c - slm perplexity: how well a model foresees a text.
 *
 * The tokens are cut into consecutive windows of at most `context` tokens, each read
 * from an empty session; the first token of a window is given and the others are
 * foreseen from those before them.  Perplexity is exp of the mean of -log p over all
 * foreseen tokens.  Where the text begins with the beginning-of-text token, every
 * later window gets one too. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "app/input.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/error.h"
#include "base/mem.h"

struct perplexity_opts {
    const char *model, *tokens, *kv;
    int context, threads;
    bool json, quiet;
};

#define AT(field) offsetof(struct perplexity_opts, field)

static const struct opt opts[] = {
    { "model", 'm', OPT_STR, AT(model), "MODEL", "the model: a file or a name", 0, 0 },
    { "tokens", 0, OPT_STR, AT(tokens), "FILE", "a JSON array of token ids instead of a text", 0,
      0 },
    { "context", 0, OPT_INT, AT(context), "N",
      "tokens of a window (4096, or the model's maximum)", 2, INT_MAX },
    { "threads", 0, OPT_INT, AT(threads), "N", "threads; 0: as many as help (0)", 0, 1024 },
    { "kv-type", 0, OPT_CHOICE, AT(kv), "f16|q8_0|f32", "precision of keys and values (f16)", 0, 0 },
    { "json", 0, OPT_FLAG, AT(json), NULL, "print one JSON object", 0, 0 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no progress", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

/* Logits that are held at a time, in bytes. */
static const size_t LOGITS_BYTES_MAX = (size_t)32 << 20;

/* Limit on the size of a file of ids. */
static const size_t TOKENS_BYTES_MAX = (size_t)256 << 20;

struct measure {
    struct perplexity_opts o;
    const char *file;
    slm_engine *engine;
    slm_model *model;
    slm_session *session;
    int32_t *ids;
    size_t n;
    int n_vocab, window;
    size_t block;          /* tokens scored at a time */
    float *logits;         /* [block][n_vocab] */
    int32_t *part;         /* [window]: tokens of a window */
    double nll;            /* sum over the foreseen tokens */
    size_t n_foreseen, n_windows;
};

/* ---- tokens ------------------------------------------------------------------------- */

static bool parse_ids(struct measure *m, const struct buf *text, slm_error *err)
{
    json_error_t why;
    json_t *list = json_loadb(buf_str(text), text->len, 0, &why);
    bool ok = json_is_array(list) ||
              slm_fail(err, SLM_E_FORMAT, "%s: no JSON array of token ids%s%s", m->o.tokens,
                       list ? "" : ": ", list ? "" : why.text);

    m->n = ok ? json_array_size(list) : 0;
    m->ids = ok ? mem_alloc(m->n, sizeof *m->ids) : NULL;
    ok = ok && (m->ids || slm_fail_nomem(err, "tokens"));
    for (size_t i = 0; ok && i < m->n; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= m->n_vocab) {
            ok = slm_fail(err, SLM_E_FORMAT, "%s: element %zu is no token id from 0 to %d",
                          m->o.tokens, i, m->n_vocab - 1);
        }
        m->ids[i] = (int32_t)id;
    }
    json_decref(list);
    return ok;
}

static bool read_ids(struct measure *m, slm_error *err)
{
    struct buf text;
    bool ok;

    buf_init(&text, TOKENS_BYTES_MAX);
    if (m->o.tokens) {
        ok = input_text(m->o.tokens, &text, err) && parse_ids(m, &text, err);
    } else {
        ok = input_text(m->file, &text, err) &&
             slm_tokenize(m->model, buf_str(&text), text.len, true, false, &m->ids, &m->n, err);
    }
    buf_deinit(&text);
    if (ok && m->n < 2) {
        return slm_fail(err, SLM_E_ARG, "perplexity needs at least two tokens, and there %s %zu",
                        m->n == 1 ? "is" : "are", m->n);
    }
    return ok;
}

/* ---- one window ---------------------------------------------------------------------- */

/* -log p of token id, by a log-softmax in double precision. */
static double token_nll(const float *logits, int n_vocab, int32_t id)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n_vocab; i++) {
        max = logits[i] > (float)max ? (double)logits[i] : max;
    }
    for (int i = 0; i < n_vocab; i++) {
        sum += exp((double)logits[i] - max);
    }
    return log(sum) + max - (double)logits[id];
}

/* Adds the tokens 1..n-1 of a window.  The last token is not read: nothing comes after. */
static bool add_window(struct measure *m, const int32_t *ids, size_t n, size_t done,
                       slm_error *err)
{
    if (!slm_session_truncate(m->session, 0, err)) {
        return false;
    }
    for (size_t i = 0; i + 1 < n; i += m->block) {
        const size_t left = n - 1 - i;
        const size_t count = left < m->block ? left : m->block;

        out_progress("token", done + i, m->n);
        if (!slm_session_score(m->session, ids + i, count, m->logits, err)) {
            return false;
        }
        for (size_t j = 0; j < count; j++) {
            m->nll += token_nll(m->logits + j * (size_t)m->n_vocab, m->n_vocab, ids[i + j + 1]);
        }
    }
    m->n_foreseen += n - 1;
    m->n_windows++;
    return true;
}

static bool measure(struct measure *m, slm_error *err)
{
    slm_model_info info;

    slm_model_info_get(m->model, &info);
    const bool bos = !m->o.tokens && info.add_bos && m->ids[0] == info.bos;
    for (size_t done = 0; done < m->n;) {
        const size_t extra = bos && done > 0 ? 1 : 0;
        const size_t left = m->n - done;
        const size_t take = left < (size_t)m->window - extra ? left : (size_t)m->window - extra;

        if (take + extra < 2) {
            break;  /* one token alone is not foreseen */
        }
        m->part[0] = info.bos;
        memcpy(m->part + extra, m->ids + done, take * sizeof *m->ids);
        if (!add_window(m, m->part, take + extra, done, err)) {
            return false;
        }
        done += take;
    }
    out_progress("token", m->n, m->n);
    return true;
}

/* ---- the verb ------------------------------------------------------------------------- */

static bool open_all(struct measure *m, slm_error *err)
{
    const slm_engine_params engine = { .threads = m->o.threads };
    slm_model_info info;

    m->engine = slm_engine_new(&engine, err);
    m->model = m->engine ? input_model(m->engine, m->o.model, NULL, err) : NULL;
    if (!m->model) {
        return false;
    }
    slm_model_info_get(m->model, &info);
    m->n_vocab = info.n_vocab;
    if (!read_ids(m, err)) {
        return false;
    }
    m->window = input_context(m->model, m->o.context);
    if ((size_t)m->window > m->n) {
        m->window = (int)m->n;
    }
    const slm_session_params session = { .context = m->window, .kv = input_kv(m->o.kv) };
    m->session = slm_session_new(m->model, &session, err);
    if (!m->session) {
        return false;
    }
    m->block = LOGITS_BYTES_MAX / ((size_t)m->n_vocab * sizeof *m->logits);
    m->block = m->block < 1 ? 1 : m->block < 512 ? m->block : 512;
    m->logits = mem_alloc(m->block, (size_t)m->n_vocab * sizeof *m->logits);
    m->part = mem_alloc((size_t)m->window, sizeof *m->part);
    return (m->logits && m->part) || slm_fail_nomem(err, "logits");
}

static void print_result(const struct measure *m)
{
    const double mean = m->nll / (double)m->n_foreseen;

    if (m->o.json) {
        out_json(json_pack("{s:f, s:f, s:I, s:I, s:I, s:i}", "perplexity", exp(mean), "mean_nll",
                           mean, "tokens", (json_int_t)m->n, "tokens_foreseen",
                           (json_int_t)m->n_foreseen, "windows", (json_int_t)m->n_windows,
                           "context", m->window),
                 false);
    } else {
        out_printf("perplexity %.4f (%zu of %zu tokens foreseen, %zu window%s of up to %d)\n",
                   exp(mean), m->n_foreseen, m->n, m->n_windows, m->n_windows == 1 ? "" : "s",
                   m->window);
    }
}

static int cmd_perplexity(int argc, char **argv)
{
    struct measure m = { .o = { .kv = "f16" } };
    struct operands rest;
    slm_error err = {0};
    int code, used = 0;

    if (!args_parse(&verb_perplexity, argc, argv, &m.o, &rest, &code)) {
        return code;
    }
    if (!m.o.model && used < rest.n) {
        m.o.model = rest.item[used++];
    }
    if (!m.o.model) {
        return args_usage(&verb_perplexity, "no model; give a file or a name");
    }
    if (!m.o.tokens && used < rest.n) {
        m.file = rest.item[used++];
    }
    if (!m.o.tokens && !m.file) {
        return args_usage(&verb_perplexity, "no text; give a file, or - for standard input");
    }
    if (used < rest.n) {
        return args_usage(&verb_perplexity, "one argument too many: \"%s\"", rest.item[used]);
    }
    out_set_quiet(m.o.quiet);
    if (open_all(&m, &err) && measure(&m, &err)) {
        print_result(&m);
        code = out_finish(0);
    } else {
        code = out_fail(&err);
    }
    mem_free(m.part);
    mem_free(m.logits);
    slm_free(m.ids);
    slm_session_free(m.session);
    slm_model_free(m.model);
    slm_engine_free(m.engine);
    return code;
}

const struct verb verb_perplexity = {
    .name = "perplexity",
    .operands = "MODEL FILE",
    .summary = "measure how well a model foresees a text",
    .more =
        "FILE is a text; - is standard input.  The tokens are cut into consecutive windows of\n"
        "--context tokens, each read on its own; its first token is given, the others are\n"
        "foreseen.  Perplexity is exp(mean of -log p) over the foreseen tokens.  Where the model\n"
        "wants a beginning-of-text token every window of a text begins with one.\n",
    .opts = opts,
    .run = cmd_perplexity,
};
