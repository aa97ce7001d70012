/* out.c - printing results, errors and progress. */
#include "app/out.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "server/json_text.h"

static struct {
    int error;          /* errno of the first failed write */
    bool quiet;
    bool progress;      /* a progress line is on the terminal */
    struct buf detail;  /* of the error that follows */
} out;

static void log_to_stderr(void *arg, slm_log_level level, const char *line)
{
    (void)arg;
    if (level == SLM_LOG_ERROR) {
        buf_clear(&out.detail);
        buf_puts(&out.detail, line);
    } else if (level == SLM_LOG_WARN) {
        out_note("warning: %s", line);
    }
}

void out_init(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    slm_log_set(log_to_stderr, NULL);
}

/* ---- standard output ----------------------------------------------------------------- */

static void check(bool ok)
{
    if (!ok && !out.error) {
        out.error = errno ? errno : EIO;
    }
}

void out_printf(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    check(vprintf(fmt, args) >= 0);
    va_end(args);
}

void out_write(const char *s, size_t n)
{
    check(fwrite(s, 1, n, stdout) == n);
}

bool out_flush(void)
{
    check(fflush(stdout) == 0);
    return !out.error;
}

int out_finish(int code)
{
    if (out_flush()) {
        return code;
    }
    if (out.error == EPIPE) {
        return 0;
    }
    out_error("standard output: %s", strerror(out.error));
    return 1;
}

void out_quoted(const char *s, size_t n, size_t max)
{
    const size_t end = max && n > max ? max : n;

    for (size_t i = 0; i < end;) {
        uint32_t cp;
        const int len = utf8_decode(s + i, n - i, &cp);

        if (len > 0 && cp >= 0x20 && !(cp >= 0x7F && cp < 0xA0)) {
            out_write(s + i, (size_t)len);
        } else if (len > 0 && (cp == '\n' || cp == '\t')) {
            out_printf("\\%c", cp == '\n' ? 'n' : 't');
        } else {
            for (int j = 0; j < (len ? len : 1); j++) {
                out_printf("\\x%02x", (unsigned char)s[i + (size_t)j]);
            }
        }
        i += (size_t)(len ? len : 1);
    }
    if (end < n) {
        out_printf("... (%zu bytes)", n);
    }
}

void out_json(json_t *value, bool indent)
{
    if (!value) {
        errno = ENOMEM;
        check(false);
        return;
    }
    check(json_dumpf(value, stdout, JSON_REAL_PRECISION(9) | (indent ? JSON_INDENT(2) : 0)) == 0);
    out_printf("\n");
    json_decref(value);
}

json_t *out_json_text(const char *s, size_t n)
{
    return json_text(s, n);
}

/* ---- standard error ------------------------------------------------------------------ */

static void clear_progress(void)
{
    if (out.progress) {
        fputs("\r\x1b[K", stderr);
        out.progress = false;
    }
}

static void print_line(const char *fmt, va_list args)
{
    clear_progress();
    fflush(stdout);
    fputs(strncmp(fmt, "slm", 3) == 0 ? "" : "slm: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

void out_error(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_line(fmt, args);
    va_end(args);
}

void out_note(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (!out.quiet) {
        print_line(fmt, args);
    }
    va_end(args);
}

void out_set_quiet(bool quiet)
{
    out.quiet = quiet;
}

bool out_is_quiet(void)
{
    return out.quiet;
}

int out_fail(const slm_error *err)
{
    const char *detail = buf_str(&out.detail);

    out_error("%s%s%s%s", err->msg[0] ? err->msg : slm_code_text(err->code), *detail ? " (" : "",
              detail, *detail ? ")" : "");
    buf_deinit(&out.detail);
    return 1;
}

const char *out_bytes(uint64_t bytes)
{
    static char text[4][24];
    static unsigned next;
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    char *s = text[next++ % 4];

    if (bytes < 1024) {
        snprintf(s, sizeof text[0], "%u B", (unsigned)bytes);
        return s;
    }
    double v = (double)bytes / 1024;
    int i = 0;
    for (; v >= 1024 && i < 5; i++) {
        v /= 1024;
    }
    snprintf(s, sizeof text[0], "%.1f %s", v, units[i]);
    return s;
}

void out_progress(const char *what, size_t done, size_t total)
{
    if (out.quiet || !isatty(STDERR_FILENO)) {
        return;
    }
    clear_progress();
    if (done < total) {
        fprintf(stderr, "%s %zu of %zu", what, done, total);
        fflush(stderr);
        out.progress = true;
    }
}
