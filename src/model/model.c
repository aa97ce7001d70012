/* model.c - loading a model and computing a step. */
#include "model/model.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "model/forward.h"
#include "model/load.h"
#include "model/residency.h"
#include "model/step.h"
#include "model/stream.h"
#include "model/work.h"

/* ---- loading ---------------------------------------------------------------------- */

static const struct arch *find_arch(const struct gguf *g, slm_error *err)
{
    struct gguf_str name = { "", 0 };
    struct gguf_str type = { "model", 5 };

    if (!gguf_get_str(g, "general.architecture", &name, err) ||
        !gguf_get_str(g, "general.type", &type, err)) {
        return NULL;
    }
    if (type.n != 5 || memcmp(type.s, "model", 5) != 0) {
        slm_fail(err, SLM_E_UNSUPPORTED, "the file holds a \"%.*s\", not a model that writes text",
                 (int)(type.n < 40 ? type.n : 40), type.s);
        return NULL;
    }
    if (name.n == 0) {
        slm_fail(err, SLM_E_FORMAT, "metadata key general.architecture is missing or empty");
        return NULL;
    }
    const struct arch *arch = arch_find(name.s, name.n);
    if (!arch) {
        slm_fail(err, SLM_E_UNSUPPORTED, "architecture \"%.*s\" is not supported; supported are %s",
                 (int)(name.n < 40 ? name.n : 40), name.s, model_arch_names());
    }
    return arch;
}

static bool bind_all(struct model *m, slm_error *err)
{
    struct binder b = { .g = m->gguf, .hp = &m->hp, .arena = &m->arena, .err = err };

    buf_init(&b.missing, 0);
    m->n_bound = draft_alone(m) ? 0 : m->hp.n_layer;
    if (m->n_bound > 0) {
        m->layers = arena_zalloc(&m->arena, (size_t)m->n_bound * m->arch->layer_size);
        if (!m->layers) {
            return slm_fail_nomem(err, "the layers");
        }
    } else if (m->hp.n_draft == 0 || !draft_alone(m)) {
        return slm_fail(err, SLM_E_FORMAT, "the file has no layers");
    }
    weights_bind(&b, arch_top_rows, arch_n_top_rows, &m->top, -1);
    weights_bind(&b, m->arch->top_rows, m->arch->n_top_rows, &m->top, -1);
    if (m->n_bound > 0) {
        weights_bind_layers(&b, m->arch->rows, m->arch->n_rows, m->layers, m->arch->layer_size);
    }
    draft_bind(m, &b);
    if (!weights_finish(&b)) {
        return false;
    }
    for (int il = 0; il < m->n_bound; il++) {
        if (m->arch->finish && !m->arch->finish(model_layer(m, il), &m->hp, il, err)) {
            return false;
        }
    }
    return draft_finish(m, err);
}

/* Tied embeddings: the output matrix is the embedding, with panels of its own. */
static void tie_output(struct model *m)
{
    if (!m->top.output.rows) {
        weight_slice(&m->top.output, &m->top.token_embd, 0, m->top.token_embd.n_out);
    }
}

/* Those of a step without drafts. */
static void step_each_weight(struct model *m, void (*fn)(void *arg, struct weight *w), void *arg)
{
    for (int il = 0; il < m->n_bound; il++) {
        m->arch->each_weight(model_layer(m, il), &m->hp, fn, arg);
    }
    if (m->top.layer_proj.rows) {
        fn(arg, &m->top.layer_proj);
    }
    for (int i = 0; m->top.stream_in && i < m->hp.n_stream; i++) {
        fn(arg, &m->top.stream_in[i]);
        fn(arg, &m->top.stream_out[i]);
    }
    fn(arg, &m->top.output);
}

void model_each_weight(struct model *m, void (*fn)(void *arg, struct weight *w), void *arg)
{
    step_each_weight(m, fn, arg);
    draft_each_weight(m, fn, arg);
}

static void measure_weight(void *arg, struct weight *w)
{
    struct model *m = arg;
    const size_t group_bytes = 16 * w->row_bytes;

    if (w->n_in > m->k_max[w->type->act]) {
        m->k_max[w->type->act] = w->n_in;
    }
    if (w->type->unpack && group_bytes > m->group_bytes_max) {
        m->group_bytes_max = group_bytes;
    }
}

static double *make_freqs(struct model *m, struct rope_params *r, const float *factors,
                          double *mscale, slm_error *err)
{
    double *freq = arena_alloc(&m->arena, (size_t)r->n_rot / 2 * sizeof *freq);

    if (!freq) {
        slm_fail_nomem(err, "the rotation frequencies");
        return NULL;
    }
    r->factors = factors;
    rope_freqs(r, freq, mscale);
    return freq;
}

/* Factors of the file: rope_freqs for all contexts, or short ones with long ones beside. */
static bool init_rope(struct model *m, slm_error *err)
{
    struct hparams *hp = &m->hp;
    const struct top *top = &m->top;
    struct rope_params *full = &hp->rope[ROPE_FULL];
    double mscale;

    if (full->scaling == ROPE_SCALE_LONGROPE && !top->rope_freqs &&
        !(top->rope_long && top->rope_short)) {
        return slm_fail(err, SLM_E_FORMAT, "rope scaling is \"longrope\" but rope_factors_long or "
                        "rope_factors_short is missing");
    }
    for (int il = 0; il < hp->n_layer + hp->n_draft; il++) {
        if (hp->rope_of[il] != ROPE_NONE) {
            m->rope_used[hp->rope_of[il]] = true;
        }
    }
    if (top->rope_long && !top->rope_freqs) {
        m->rope_freq_long = make_freqs(m, full, top->rope_long, &mscale, err);
        if (!m->rope_freq_long) {
            return false;
        }
    }
    m->rope_freq[ROPE_SLIDING] = make_freqs(m, &hp->rope[ROPE_SLIDING], NULL,
                                            &m->rope_mscale[ROPE_SLIDING], err);
    m->rope_freq[ROPE_FULL] =
        make_freqs(m, full, top->rope_freqs ? top->rope_freqs : top->rope_short,
                   &m->rope_mscale[ROPE_FULL], err);
    return m->rope_freq[ROPE_FULL] && m->rope_freq[ROPE_SLIDING];
}

/* Weights of a step; each expert is a weight of its own. */
struct use {
    const struct model *m;
    uint64_t bytes, params;              /* always */
    uint64_t expert_bytes, expert_params;
};

static void count_use(void *arg, struct weight *w)
{
    struct use *u = arg;
    const uint64_t params = (uint64_t)w->n_out * (uint64_t)w->n_in;

    if (weight_is_expert(w, &u->m->hp)) {
        u->expert_bytes += weight_bytes(w);
        u->expert_params += params;
    } else if (w != &u->m->top.output) {
        u->bytes += weight_bytes(w);
        u->params += params;
    }
}

/* What one token needs. */
static void init_use(struct model *m)
{
    const uint64_t n_expert = m->hp.n_expert > 0 ? (uint64_t)m->hp.n_expert : 1;
    const uint64_t n_used = (uint64_t)m->hp.n_expert_used, n_loop = (uint64_t)m->hp.n_loop;
    struct use u = { .m = m };

    step_each_weight(m, count_use, &u);
    m->shape.token_bytes = n_loop * (u.bytes + u.expert_bytes / n_expert * n_used) +
                           weight_bytes(&m->top.output);
    m->shape.prompt_params = n_loop * (u.params + u.expert_params / n_expert * n_used);
}

static void init_shape(struct model *m)
{
    const struct hparams *hp = &m->hp;
    struct model_shape *s = &m->shape;

    *s = (struct model_shape){
        .arch = m->arch->name, .n_layer = hp->n_layer, .n_embd = hp->n_embd, .n_head = hp->n_head,
        .n_head_kv = hp->n_head_kv, .n_vocab = hp->n_vocab, .context_max = hp->context_max,
        .n_kv_layer = hp->n_kv_layer, .n_state = hp->n_state,
        .can_draft = m->draft.layer != NULL, .only_drafts = m->n_bound == 0,
    };
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        s->weight_bytes += t->bytes;
        s->n_params += (uint64_t)t->ne[0] * (uint64_t)t->ne[1] * (uint64_t)t->ne[2] *
                       (uint64_t)t->ne[3];
    }
    if (m->n_bound > 0) {
        init_use(m);
    }
}

struct model *model_load(const struct gguf *g, struct pool *pool, const struct kern *k,
                         slm_error *err)
{
    const struct arch *arch = find_arch(g, err);
    struct model *m = arch ? mem_zalloc(1, sizeof *m) : NULL;

    if (!m) {
        if (arch) {
            slm_fail_nomem(err, "the model");
        }
        return NULL;
    }
    m->gguf = g;
    m->arch = arch;
    m->pool = pool;
    m->k = k;
    arena_init(&m->arena, 1 << 16, 0);
    if (!hparams_read(&m->hp, g, arch->name, err) || !arch->hparams(&m->hp, g, err) ||
        !bind_all(m, err) || !init_rope(m, err)) {
        goto fail;
    }
    tie_output(m);
    model_each_weight(m, measure_weight, m);
    init_shape(m);
    return m;

fail:
    model_free(m);
    return NULL;
}

bool model_place(struct model *m, const struct model_place *place, slm_error *err)
{
    assert(!m->residency);
    m->residency = residency_new(m, place, err);
    return m->residency != NULL;
}

struct model *model_new(const struct gguf *g, struct pool *pool, const struct kern *k,
                        enum model_pack pack, slm_error *err)
{
    const struct model_place place = { .pack = pack };
    struct model *m = model_load(g, pool, k, err);

    if (m && !model_place(m, &place, err)) {
        model_free(m);
        return NULL;
    }
    return m;
}

void model_free(struct model *m)
{
    if (m) {
        residency_free(m->residency);
        mem_free(m->profile);
        arena_deinit(&m->arena);
        mem_free(m);
    }
}

const struct model_shape *model_shape(const struct model *m)
{
    return &m->shape;
}

uint64_t model_identity(const struct model *m)
{
    return gguf_identity(m->gguf);
}

bool model_long_rope(const struct model *m, int context_max)
{
    return m->rope_freq_long && context_max > m->hp.rope[ROPE_FULL].orig_context;
}

size_t kv_page_bytes(const struct layer_shape *l, enum kv_type kv)
{
    return (size_t)l->n_head_kv * (kv_head_bytes(kv, l->k_dim) + kv_head_bytes(kv, l->v_dim));
}

size_t model_kv_page_bytes(const struct model *m, int il, enum kv_type kv)
{
    return kv_page_bytes(&m->hp.layer[m->hp.kv_owner[il]], kv);
}

int model_kv_window(const struct model *m, int il)
{
    return m->hp.sliding[m->hp.kv_owner[il]] ? m->hp.window : 0;
}

size_t model_state_bytes(const struct model *m)
{
    return align_up(delta_state_floats(&m->hp.delta) * sizeof(float), 64);
}

/* ---- a step ------------------------------------------------------------------------- */

/* Position and sequence of every token; tokens checked. */
static bool place_tokens(const struct step *st, slm_error *err)
{
    int t = 0;

    for (int s = 0; s < st->in->n_seq; s++) {
        const struct step_seq *seq = &st->in->seq[s];
        for (int i = 0; i < seq->n_tok; i++, t++) {
            const int32_t id = st->in->tok[t];
            if (id < 0 || id >= st->hp->n_vocab) {
                return slm_fail(err, SLM_E_ARG, "token %d is out of range, the vocabulary has %d",
                                id, st->hp->n_vocab);
            }
            st->work->pos[t] = seq->pos0 + i;
            st->work->seq[t] = s;
        }
    }
    assert(t == st->n_tok);
    return true;
}

bool step_begin(struct step *st, struct model *m, struct work *w, const struct step_in *in,
                slm_error *err)
{
    *st = (struct step){
        .model = m, .hp = &m->hp, .k = m->k, .pool = m->pool, .work = w, .in = in,
        .n_tok = in->n_tok, .pos = w->pos, .seq = w->seq,
        .rope = { w->rope[ROPE_FULL], w->rope[ROPE_SLIDING] },
        .rope_pairs = m->arch->rope_pairs,
        .stream = residency_stream(m->residency),
    };
    w->rows_used = 0;
    assert(in->n_tok >= 1 && in->n_tok <= w->n_tok_max);
    return place_tokens(st, err);
}

void step_rope(struct step *st, int t)
{
    const struct model *m = st->model;
    const struct hparams *hp = st->hp;

    for (int kind = 0; kind < ROPE_KINDS; kind++) {
        const int n_rot = hp->rope[kind].n_rot;
        const bool is_long = kind == ROPE_FULL && model_long_rope(m, st->work->context_max);
        if (m->rope_used[kind]) {
            rope_table(is_long ? m->rope_freq_long : m->rope_freq[kind], n_rot,
                       m->rope_mscale[kind], st->pos[t],
                       st->work->rope[kind] + (size_t)t * (size_t)n_rot);
        }
    }
}

struct start_op {
    struct step *st;
    float *x;
};

/* Rotations and the embedding of one token. */
static void start_row(void *arg, int t, int worker)
{
    const struct start_op *op = arg;
    struct step *st = op->st;
    const struct model *m = st->model;
    const struct hparams *hp = st->hp;
    float *x = op->x + (size_t)t * (size_t)hp->n_embd;

    step_rope(st, t);
    table_row(st, &m->top.token_embd, st->in->tok[t], x, worker);
    if (hp->embd_scale != 1) {
        st->k->scale(x, hp->embd_scale, hp->n_embd);
    }
}

struct logits_op {
    struct step *st;
    float *logits;         /* [n_want][n_vocab] */
};

/* Scales and caps one row of logits. */
static void logits_row(void *arg, int i, int worker)
{
    const struct logits_op *op = arg;
    const struct hparams *hp = op->st->hp;
    const struct kern *k = op->st->k;
    float *row = op->logits + (size_t)i * (size_t)hp->n_vocab;

    (void)worker;
    if (hp->logit_scale != 1) {
        k->scale(row, 1.0f / hp->logit_scale, hp->n_vocab);
    }
    if (hp->final_softcap != 0) {
        k->softcap(row, hp->final_softcap, hp->n_vocab);
    }
}

void step_fail(struct step *st, const slm_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* only failing steps come here */

    pthread_mutex_lock(&lock);
    if (!atomic_load(&st->failed)) {
        st->fault = *err;
        atomic_store(&st->failed, true);
    }
    pthread_mutex_unlock(&lock);
}

void table_row(struct step *st, const struct weight *w, int row, float *out, int worker)
{
    slm_error err;

    if (!w->reader) {
        weight_row(w, row, out);
        return;
    }
    const uint8_t *data =
        reader_read(w->reader, w->offset + (size_t)row * w->row_bytes, w->row_bytes,
                    residency_row_room(st->model->residency, worker), &err);
    if (data) {
        w->type->decode(data, (size_t)w->n_in, out);
    } else {
        memset(out, 0, (size_t)w->n_in * sizeof *out);
        step_fail(st, &err);
    }
}

/* Whether all weights could be read. */
static bool step_ok(struct step *st, slm_error *err)
{
    if (!atomic_load(&st->failed)) {
        return true;
    }
    if (st->stream) {
        stream_forget(st->stream);
    }
    if (err) {
        *err = st->fault;
    }
    return false;
}

bool step_finish(struct step *st, const float *x, const struct head *head, float *logits,
                 slm_error *err)
{
    const struct step_in *in = st->in;
    const size_t n_embd = (size_t)st->hp->n_embd, n_vocab = (size_t)st->hp->n_vocab;
    float *u = st->work->rows + st->work->rows_used;  /* n_want_max rows are left for this */
    atomic_bool *broken = st->work->broken;
    struct logits_op op = { st, logits };
    int n_want = 0;

    if (in->hidden) {
        op_norm(st, in->hidden, x, head->norm);
    }
    for (int t = 0; t < st->n_tok; t++) {
        if (in->want[t]) {
            assert(n_want < st->work->n_want_max);
            norm_row(st, u + (size_t)n_want++ * n_embd, x + (size_t)t * n_embd,
                     head->norm);
        }
    }
    if (n_want == 0) {
        return step_ok(st, err);
    }
    for (int i = 0; i < n_want; i++) {
        atomic_init(&broken[i], false);
    }
    const struct product p = { head->output, head->bias, logits, n_vocab };
    matmul_nan(st, &p, u, n_embd, n_want, broken);
    if (!step_ok(st, err)) {
        return false;
    }
    if (st->hp->logit_scale != 1 || st->hp->final_softcap != 0) {
        pool_run(st->pool, logits_row, &op, n_want);
    }
    for (int i = 0; i < n_want; i++) {
        if (in->broken) {
            in->broken[i] = broken[i];
        } else if (broken[i]) {
            return slm_fail(err, SLM_E_NUMERIC, "the model computed a logit that is not a number; "
                            "the file's weights are damaged or of a wrong type");
        }
    }
    return true;
}

static void run_layers(struct step *st, float *x)
{
    const struct model *m = st->model;

    for (int il = 0; il < st->hp->n_layer && !atomic_load(&st->failed); il++) {
        const size_t mark = scratch_mark(st);
        m->arch->layer(st, model_layer(m, il), il, x);
        scratch_release(st, mark);
    }
}

bool model_step(struct model *m, struct work *w, const struct step_in *in, float *logits,
                slm_error *err)
{
    const struct head head = { m->top.output_norm, &m->top.output, m->top.output_bias };
    struct step st;

    assert(m->n_bound > 0);
    const double begin = profile_begin(m->profile);
    if (!step_begin(&st, m, w, in, err)) {
        return false;
    }
    st.profile = m->profile;
    float *x = scratch_rows(&st, m->hp.n_embd);
    struct start_op op = { &st, x };
    pool_run(m->pool, start_row, &op, in->n_tok);
    if (m->arch->begin) {
        m->arch->begin(&st, x);
    }
    for (st.loop = 0; st.loop < m->hp.n_loop; st.loop++) {
        if (st.loop > 0 && m->hp.loop_norm) {
            op_norm(&st, x, x, m->top.output_norm);
        }
        run_layers(&st, x);
    }
    if (m->arch->end) {
        m->arch->end(&st, x);
    }
    const bool ok = step_finish(&st, x, &head, logits, err);
    residency_step_done(m->residency);
    if (m->profile) {
        m->profile->step_s += time_now() - begin;
        m->profile->steps++;
    }
    return ok;
}

bool model_profile(struct model *m, slm_error *err)
{
    if (!m->profile) {
        m->profile = mem_zalloc(1, sizeof *m->profile);
        return m->profile || slm_fail_nomem(err, "a profile");
    }
    memset(m->profile, 0, sizeof *m->profile);
    return true;
}

const struct profile *model_profiled(const struct model *m)
{
    return m->profile;
}
