/* fuzz_snapshot.c - any bytes as a snapshot: refused and nothing has changed, or the session can go
 * on.
 *
 * The first byte chooses a session and whether the rest becomes the whole snapshot or is laid over
 * one that is right; then the checksum is made right, or nothing behind it would be reached. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "run/session.h"
#include "run/snapshot.h"
#include "tiny_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_IDS = 70, CONTEXT = 256 };

/* A model with full layers, one with windows and one with states; `right` is a snapshot of each. */
static struct fixture {
    const char *arch;
    struct gguf *gguf;
    struct session *session;
    struct buf right;
} fixtures[] = { { .arch = "llama" }, { .arch = "gemma3" }, { .arch = "qwen35" } };

enum { N_FIXTURES = sizeof fixtures / sizeof *fixtures };

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void make_fixture(struct fixture *f)
{
    static struct pool *pool;
    const struct tiny_shape shape = TINY_SHAPE;
    const struct session_params params = { .context = CONTEXT, .kv = KV_Q8_0 };
    char path[] = "/tmp/slm-fuzz-XXXXXX";
    const int fd = mkstemp(path);
    int32_t ids[N_IDS];
    struct model *m;

    require(fd >= 0);
    close(fd);
    pool = pool ? pool : pool_new(1, NULL);
    require(tiny_model_write(path, arch_find(f->arch, strlen(f->arch)), quant_type(QT_Q8_0),
                             &shape, NULL));
    f->gguf = gguf_open(path, NULL);
    m = model_new(f->gguf, pool, kern_get(cpu_isa_best()), MODEL_PACK_OFF, NULL);
    f->session = session_new(m, &params, NULL);
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = i;
    }
    require(session_feed(f->session, ids, N_IDS, NULL) && session_save(f->session, path, NULL));
    buf_init(&f->right, 0);
    require(file_read(path, (size_t)1 << 30, &f->right, NULL));
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) {
        return 0;
    }
    struct fixture *f = &fixtures[data[0] % N_FIXTURES];
    const bool over = data[0] & 0x80;

    if (!f->session) {
        make_fixture(f);
    }
    const size_t size = over && f->right.len > n - 1 ? f->right.len : n - 1;
    char *bytes = mem_zalloc(size, 1);
    if (over) {
        memcpy(bytes, f->right.data, f->right.len);
    }
    memcpy(bytes, data + 1, n - 1);
    snapshot_seal(bytes, size);

    const int len = session_len(f->session);
    const bool had = session_logits(f->session) != NULL;
    if (!session_load_mem(f->session, bytes, size, NULL)) {
        require(session_len(f->session) == len && (session_logits(f->session) != NULL) == had);
    } else {
        require(session_len(f->session) <= CONTEXT);
        if (session_len(f->session) < CONTEXT) {
            session_feed(f->session, &(int32_t){ 1 }, 1, NULL);  /* may fail: NaN in a page */
        }
    }
    mem_free(bytes);
    return 0;
}
