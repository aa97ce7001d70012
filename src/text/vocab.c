/* vocab.c - reading tokenizer.* metadata: texts, types, pieces, special ids, what ends an
 * answer.
 *
 * Texts stay in the mapped file; the bytes that tokens stand for are decoded once into one
 * block.  Types are those of the file: a text that looks like a control token does not make
 * it one. */
#include "text/vocab.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/utf8.h"
#include "text/tok.h"

#define KEY(name) "tokenizer.ggml." name

/* ---- names that mean something ----------------------------------------------------- */

/* Tokens that end an answer wherever a vocabulary has them, and the padding and separator
 * tokens of code models, which a model never means as text. */
static const char *const end_names[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>",
    "<|file_sep|>",
};

static const char *const end_keys[] = {
    KEY("eos_token_id"), KEY("eot_token_id"), KEY("eom_token_id"),
    KEY("fim_pad_token_id"), KEY("fim_rep_token_id"), KEY("fim_sep_token_id"),
};

static bool text_is(struct gguf_str s, const char *name)
{
    return s.n == strlen(name) && memcmp(s.s, name, s.n) == 0;
}

static bool is_end_name(struct gguf_str s)
{
    if (s.n < 4 || s.n > 40) {
        return false;
    }
    for (size_t i = 0; i < sizeof end_names / sizeof end_names[0]; i++) {
        if (text_is(s, end_names[i])) {
            return true;
        }
    }
    return false;
}

/* ---- bytes of texts ---------------------------------------------------------------- */

/* Byte-level BPE writes each byte as a printable character: itself where that is one, else
 * the next of U+0100 and up. */
static bool prints_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

int tok_byte_of(uint32_t cp)
{
    if (cp < 0x100) {
        return prints_itself(cp) ? (int)cp : -1;
    }
    /* The 68 others in order: 00-20, 7F-A0, AD. */
    uint32_t i = cp - 0x100;

    return i <= 0x20 ? (int)i : i <= 0x42 ? (int)(i - 0x21 + 0x7F) : i == 0x43 ? 0xAD : -1;
}

int64_t tok_decode_bytes(const char *s, size_t n, char *out)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t len = 0;

    /* The alphabet ends at U+0143, so a character has one or two bytes. */
    for (size_t i = 0; i < n; i++) {
        unsigned c = u[i];

        if (c - 0x21 > 0x7E - 0x21) {
            uint32_t cp = UINT32_MAX;

            if (c >= 0xC2 && c <= 0xC5 && i + 1 < n && (u[i + 1] & 0xC0) == 0x80) {
                i++;
                cp = (c & 0x1Fu) << 6 | (u[i] & 0x3Fu);
            }
            int b = tok_byte_of(cp);

            if (b < 0) {
                return -1;
            }
            c = (unsigned)b;
        }
        out[len++] = (char)c;
    }
    return (int64_t)len;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tok_hex_byte(struct gguf_str s)
{
    if (s.n != 6 || memcmp(s.s, "<0x", 3) != 0 || s.s[5] != '>') {
        return -1;
    }
    int hi = hex_digit(s.s[3]);
    int lo = hex_digit(s.s[4]);

    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static size_t copy_unmarked(struct gguf_str s, char *out)
{
    size_t len = 0;

    for (size_t i = 0; i < s.n;) {
        if (is_mark(s.s + i, s.n - i)) {
            out[len++] = ' ';
            i += 3;
        } else {
            out[len++] = s.s[i++];
        }
    }
    return len;
}

/* Bytes of a token, at most as many as its text has; returns how many. */
static size_t decode_piece(struct vocab *v, int32_t id, char *out)
{
    struct gguf_str s = v->text[id];
    int type = token_type(v, id);

    if (type == TOKEN_BYTE && tok_hex_byte(s) >= 0) {
        out[0] = (char)tok_hex_byte(s);
        return 1;
    }
    if (v->kind == VOCAB_BPE) {
        int64_t n = tok_decode_bytes(s.s, s.n, out);

        if (n < 0) {
            v->type[id] |= VOCAB_FOREIGN;
        } else if (type == TOKEN_NORMAL) {
            return (size_t)n;
        }
    } else if (type == TOKEN_NORMAL) {
        return copy_unmarked(s, out);
    }
    memcpy(out, s.s, s.n);
    return s.n;
}

static bool decode_pieces(struct vocab *v, slm_error *err)
{
    size_t total = 0;

    for (int i = 0; i < v->n; i++) {
        total += v->text[i].n;  /* parts of one file: no overflow */
    }
    if (total > UINT32_MAX) {
        return slm_fail(err, SLM_E_FORMAT, KEY("tokens") ": texts of %zu bytes, at most %u are "
                        "supported", total, UINT32_MAX);
    }
    v->piece = mem_alloc(total, 1);
    v->piece_at = mem_alloc((size_t)v->n + 1, sizeof *v->piece_at);
    if (v->piece == NULL || v->piece_at == NULL) {
        return slm_fail_nomem(err, "the vocabulary");
    }
    size_t at = 0;

    for (int i = 0; i < v->n; i++) {
        v->piece_at[i] = (uint32_t)at;
        at += decode_piece(v, i, v->piece + at);
    }
    v->piece_at[v->n] = (uint32_t)at;
    return true;
}

/* ---- reading ----------------------------------------------------------------------- */

static bool read_kind(struct vocab *v, const struct gguf *g, slm_error *err)
{
    static const struct {
        const char *name;
        enum vocab_kind kind;
    } kinds[] = {{"llama", VOCAB_SPM}, {"gpt2", VOCAB_BPE}, {"gemma4", VOCAB_GEMMA4}};
    struct gguf_str s = {0};

    if (!gguf_get_str(g, KEY("model"), &s, err)) {
        return false;
    }
    if (s.s == NULL) {
        return slm_fail(err, SLM_E_FORMAT, KEY("model") " is missing: the file has no tokenizer");
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (text_is(s, kinds[i].name)) {
            v->kind = kinds[i].kind;
            return true;
        }
    }
    return slm_fail(err, SLM_E_UNSUPPORTED, "tokenizer kind '%.*s' is not supported "
                    "(supported: llama, gpt2, gemma4)", (int)(s.n < 40 ? s.n : 40), s.s);
}

/* An array of at least n entries, or NULL where it is missing. */
static bool read_array(const struct gguf *g, const char *key, uint64_t n, bool required,
                       const struct gguf_kv **out, slm_error *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    *out = NULL;
    if (kv == NULL) {
        return !required || slm_fail(err, SLM_E_FORMAT, "%s is missing", key);
    }
    if (kv->type != GGUF_ARR) {
        return slm_fail(err, SLM_E_FORMAT, "%s is not an array but of type %s", key,
                        gguf_type_name(kv->type));
    }
    if (kv->n < n) {
        return slm_fail(err, SLM_E_FORMAT, "%s has %llu entries, the vocabulary has %llu tokens",
                        key, (unsigned long long)kv->n, (unsigned long long)n);
    }
    *out = kv;
    return true;
}

static bool fail_elem(slm_error *err, const char *key, const struct gguf_kv *kv, const char *want)
{
    return slm_fail(err, SLM_E_FORMAT, "%s is an array of %s, not of %s", key,
                    gguf_type_name(kv->elem), want);
}

static bool read_texts(struct vocab *v, const struct gguf *g, slm_error *err)
{
    const struct gguf_kv *kv;

    if (!read_array(g, KEY("tokens"), 1, true, &kv, err)) {
        return false;
    }
    if (kv->elem != GGUF_STR) {
        return fail_elem(err, KEY("tokens"), kv, "strings");
    }
    /* Half of the 32-bit range leaves room for twice as many hash slots. */
    if (kv->n > INT32_MAX / 2) {
        return slm_fail(err, SLM_E_FORMAT, KEY("tokens") " has %llu entries, at most %d are "
                        "supported", (unsigned long long)kv->n, INT32_MAX / 2);
    }
    v->text = kv->str;
    v->n = (int)kv->n;
    return true;
}

static bool read_types(struct vocab *v, const struct gguf *g, slm_error *err)
{
    const struct gguf_kv *kv;

    v->type = mem_alloc((size_t)v->n, 1);
    if (v->type == NULL) {
        return slm_fail_nomem(err, "the vocabulary");
    }
    memset(v->type, TOKEN_NORMAL, (size_t)v->n);
    if (!read_array(g, KEY("token_type"), (uint64_t)v->n, false, &kv, err)) {
        return false;
    }
    if (kv == NULL) {
        return true;
    }
    if (!gguf_is_int(kv->elem)) {
        return fail_elem(err, KEY("token_type"), kv, "integers");
    }
    for (int i = 0; i < v->n; i++) {
        int64_t type = gguf_int_at(kv, (uint64_t)i);

        if (type < 0 || type >= TOKEN_TYPE_COUNT) {
            return slm_fail(err, SLM_E_FORMAT, KEY("token_type") "[%d] is %lld, known are 0 to %d",
                            i, (long long)type, TOKEN_TYPE_COUNT - 1);
        }
        v->type[i] = (uint8_t)type;
    }
    return true;
}

static bool read_scores(struct vocab *v, const struct gguf *g, slm_error *err)
{
    if (!read_array(g, KEY("scores"), (uint64_t)v->n, false, &v->scores, err)) {
        return false;
    }
    const struct gguf_kv *kv = v->scores;

    if (kv != NULL && kv->elem != GGUF_F32 && kv->elem != GGUF_F64 && !gguf_is_int(kv->elem)) {
        return fail_elem(err, KEY("scores"), kv, "numbers");
    }
    return true;
}

static bool read_merges(struct vocab *v, const struct gguf *g, slm_error *err)
{
    if (v->kind == VOCAB_SPM) {
        return true;
    }
    if (!read_array(g, KEY("merges"), 0, true, &v->merges, err)) {
        return false;
    }
    if (v->merges->elem != GGUF_STR) {
        return fail_elem(err, KEY("merges"), v->merges, "strings");
    }
    if (v->merges->n > INT32_MAX / 2) {
        return slm_fail(err, SLM_E_FORMAT, KEY("merges") " has %llu entries, at most %d are "
                        "supported", (unsigned long long)v->merges->n, INT32_MAX / 2);
    }
    return true;
}

/* An error message has room for the first name of some rows; the log gets all names. */
static bool fail_pre(slm_error *err, struct gguf_str name)
{
    enum { ROOM = 130 };
    const struct pretok *p;
    struct buf list;

    buf_init(&list, 0);
    pretok_list(&list);
    log_line(SLM_LOG_INFO, "supported pre-tokenisers: %s", buf_str(&list));
    buf_clear(&list);
    for (size_t i = 0; (p = pretok_at(i)) != NULL && list.len < ROOM; i++) {
        buf_printf(&list, "%s%.*s", i > 0 ? ", " : "", (int)strcspn(p->names, " "), p->names);
    }
    slm_fail(err, SLM_E_UNSUPPORTED, KEY("pre") " '%.*s' is not supported (supported: %s, ...)",
             (int)(name.n < 40 ? name.n : 40), name.s, buf_str(&list));
    buf_deinit(&list);
    return false;
}

/* Files of the GPT-NeoX family were written before the key existed. */
static bool read_pre(struct vocab *v, const struct gguf *g, slm_error *err)
{
    struct gguf_str name = {0};
    struct gguf_str arch = {0};

    if (v->kind == VOCAB_SPM) {
        return true;
    }
    if (!gguf_get_str(g, KEY("pre"), &name, err) ||
        !gguf_get_str(g, "general.architecture", &arch, err)) {
        return false;
    }
    if (v->kind == VOCAB_GEMMA4) {
        name = (struct gguf_str){"gemma4", 6};
    } else if (name.s == NULL) {
        bool neox = text_is(arch, "gptneox") || text_is(arch, "stablelm");

        name = neox ? (struct gguf_str){"gpt-neox", 8} : (struct gguf_str){"default", 7};
        log_line(SLM_LOG_WARN, KEY("pre") " is missing, assuming '%s'", name.s);
    }
    v->pre = pretok_find(name.s, name.n);
    return v->pre != NULL || fail_pre(err, name);
}

/* An id from the file; one that no token has is ignored. */
static int32_t read_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t none)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    if (kv == NULL) {
        return none < v->n ? none : -1;
    }
    if (kv->type == GGUF_ARR || !gguf_is_int(kv->type)) {
        log_line(SLM_LOG_WARN, "%s is no integer and is ignored", key);
        return none < v->n ? none : -1;
    }
    /* A u64 above the signed range comes out negative. */
    int64_t id = gguf_int_at(kv, 0);

    if (id < 0 || id >= v->n) {
        log_line(SLM_LOG_WARN, "%s is %lld, the vocabulary has %d tokens; it is ignored", key,
                 (long long)id, v->n);
        return none < v->n ? none : -1;
    }
    return (int32_t)id;
}

static bool read_flags(struct vocab *v, const struct gguf *g, slm_error *err)
{
    bool spm = v->kind == VOCAB_SPM;

    v->bos = read_id(v, g, KEY("bos_token_id"), spm ? 1 : -1);
    v->eos = read_id(v, g, KEY("eos_token_id"), spm ? 2 : -1);
    v->unk = read_id(v, g, KEY("unknown_token_id"), spm ? 0 : -1);
    v->add_bos = spm || (v->pre != NULL && (v->pre->flags & PRETOK_ADD_BOS));
    v->add_space = spm;
    if (!gguf_get_bool(g, KEY("add_bos_token"), &v->add_bos, err) ||
        !gguf_get_bool(g, KEY("add_eos_token"), &v->add_eos, err) ||
        !gguf_get_bool(g, KEY("add_space_prefix"), &v->add_space, err)) {
        return false;
    }
    v->add_bos |= v->kind == VOCAB_GEMMA4;
    v->add_space &= spm;
    return true;
}

/* ASCII lower case of s contains the name. */
static bool contains(struct gguf_str s, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i + n <= s.n; i++) {
        size_t k = 0;

        while (k < n && (s.s[i + k] >= 'A' && s.s[i + k] <= 'Z' ? s.s[i + k] + 32
                                                                : s.s[i + k]) == name[k]) {
            k++;
        }
        if (k == n) {
            return true;
        }
    }
    return false;
}

/* The container has no key for it: tokens of Phi-3 take the white space behind them. */
static bool read_rstrip(struct vocab *v, const struct gguf *g, slm_error *err)
{
    struct gguf_str name = {0};

    if (!gguf_get_str(g, "general.name", &name, err)) {
        return false;
    }
    v->rstrip = contains(name, "phi-3") || contains(name, "phi3");
    return true;
}

/* ---- what ends an answer ----------------------------------------------------------- */

/* First token with this text, or -1. */
static int32_t find_text(const struct vocab *v, const char *text)
{
    for (int32_t id = 0; id < v->n; id++) {
        if (text_is(v->text[id], text)) {
            return id;
        }
    }
    return -1;
}

static void clear_end(struct vocab *v, const char *text)
{
    for (int32_t id = 0; id < v->n; id++) {
        if ((v->type[id] & VOCAB_END) && text_is(v->text[id], text)) {
            v->type[id] &= (uint8_t)~VOCAB_END;
        }
    }
}

/* Whether the file says which tokens are special.  Then a normal one with the text of an end
 * token is text, as "</s>" is in some vocabularies. */
static bool has_types(const struct vocab *v)
{
    for (int i = 0; i < v->n; i++) {
        if (token_type(v, i) == TOKEN_CONTROL || token_type(v, i) == TOKEN_USER_DEFINED) {
            return true;
        }
    }
    return false;
}

static void mark_ends(struct vocab *v, const struct gguf *g)
{
    bool typed = has_types(v);
    bool returns = false;
    bool calls = false;
    bool tool_response = false;

    for (int32_t id = 0; id < v->n; id++) {
        if (typed && token_type(v, id) == TOKEN_NORMAL) {
            continue;
        }
        if (is_end_name(v->text[id])) {
            v->type[id] |= VOCAB_END;
            returns |= text_is(v->text[id], "<|return|>") || text_is(v->text[id], "<|calls|>");
            calls |= text_is(v->text[id], "<|call|>") || text_is(v->text[id], "<|flush|>");
            tool_response |= text_is(v->text[id], "<|tool_response>");
        }
    }
    if (returns && calls) {
        clear_end(v, "<|end|>");  /* there it ends a part of an answer */
    }
    if (tool_response || find_text(v, "<|plamo:eos|>") >= 0) {
        clear_end(v, "</s>");
    }
    for (size_t i = 0; i < sizeof end_keys / sizeof end_keys[0]; i++) {
        int32_t id = read_id(v, g, end_keys[i], -1);

        if (id >= 0) {
            v->type[id] |= VOCAB_END;
        }
    }
    if (v->eos >= 0) {
        v->type[v->eos] |= VOCAB_END;
    }
}

/* ---- interface --------------------------------------------------------------------- */

struct vocab *vocab_new(const struct gguf *g, slm_error *err)
{
    struct vocab *v = mem_zalloc(1, sizeof *v);

    if (v == NULL) {
        slm_fail_nomem(err, "the vocabulary");
        return NULL;
    }
    if (!read_kind(v, g, err) || !read_texts(v, g, err) || !read_types(v, g, err) ||
        !read_scores(v, g, err) || !read_merges(v, g, err) || !read_pre(v, g, err) ||
        !read_flags(v, g, err) || !read_rstrip(v, g, err) || !decode_pieces(v, err) ||
        !specials_init(&v->user, v, false, err) || !specials_init(&v->all, v, true, err)) {
        goto fail;
    }
    mark_ends(v, g);
    v->tables = tok_tables_new(v, err);
    if (v->tables == NULL) {
        goto fail;
    }
    return v;

fail:
    vocab_free(v);
    return NULL;
}

void vocab_free(struct vocab *v)
{
    if (v == NULL) {
        return;
    }
    tok_tables_free(v->tables);
    specials_deinit(&v->user);
    specials_deinit(&v->all);
    mem_free(v->piece);
    mem_free(v->piece_at);
    mem_free(v->type);
    mem_free(v);
}

int vocab_size(const struct vocab *v)
{
    return v->n;
}

int vocab_bos(const struct vocab *v)
{
    return v->bos;
}

int vocab_eos(const struct vocab *v)
{
    return v->eos;
}

bool vocab_add_bos(const struct vocab *v)
{
    return v->add_bos && v->bos >= 0;
}

bool vocab_is_end(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && (v->type[id] & VOCAB_END);
}

const char *vocab_piece(const struct vocab *v, int32_t id, bool special, size_t *n)
{
    *n = 0;
    if (id < 0 || id >= v->n) {
        return NULL;
    }
    int type = token_type(v, id);
    const char *s = v->piece + v->piece_at[id];

    if (type == TOKEN_UNUSED || type == TOKEN_UNDEFINED ||
        (!special && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN))) {
        return s;
    }
    *n = v->piece_at[id + 1] - v->piece_at[id];
    return s;
}

bool vocab_detokenize(const struct vocab *v, const int32_t *ids, size_t n_ids, bool special,
                      struct buf *out, slm_error *err)
{
    bool first = v->add_space;  /* the space that encoding put in front goes away */

    for (size_t i = 0; i < n_ids; i++) {
        size_t n;
        const char *s = vocab_piece(v, ids[i], special, &n);

        if (s == NULL) {
            return slm_fail(err, SLM_E_ARG, "token %d is not in the vocabulary of %d tokens",
                            ids[i], v->n);
        }
        if (first && n > 0) {
            first = false;
            if (s[0] == ' ') {
                s++;
                n--;
            }
        }
        buf_add(out, s, n);
    }
    return !out->failed || slm_fail_nomem(err, "the text");
}

void ids_deinit(struct ids *ids)
{
    mem_free(ids->data);
    *ids = (struct ids){0};
}
