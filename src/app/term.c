/* term.c - lines by libedit or plainly. */
#include "app/term.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/mem.h"

#ifdef HAVE_LIBEDIT
#include <histedit.h>
#endif

struct term {
    bool interactive;
    char *line;              /* of getline */
    size_t line_cap;
#ifdef HAVE_LIBEDIT
    EditLine *edit;          /* NULL: lines are read plainly */
    History *history;
    const char *prompt;
    bool interrupted;
    struct termios usual;    /* how the terminal is outside of term_line */
    char path[4096];         /* of the history, "" for none */
#endif
};

bool term_colors(void)
{
    const char *no = getenv("NO_COLOR"), *kind = getenv("TERM");

    return isatty(STDOUT_FILENO) && !(no && *no) && kind && strcmp(kind, "dumb") != 0;
}

bool term_interactive(const struct term *t)
{
    return t->interactive;
}

/* ---- plainly ----------------------------------------------------------------------------- */

static enum term_event plain_line(struct term *t, const char *prompt, struct buf *line)
{
    if (t->interactive) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    errno = 0;
    ssize_t n = getline(&t->line, &t->line_cap, stdin);
    if (n < 0) {
        const bool again = errno == EINTR;
        clearerr(stdin);
        return again ? TERM_INTERRUPT : TERM_END;
    }
    n -= n > 0 && t->line[n - 1] == '\n';
    n -= n > 0 && t->line[n - 1] == '\r';
    buf_add(line, t->line, (size_t)n);
    return TERM_LINE;
}

/* ---- libedit ----------------------------------------------------------------------------- */

#ifdef HAVE_LIBEDIT

enum { HISTORY_MAX = 1000, PASTE_MAX = 8 << 20 };

static const char PASTE_ON[] = "\x1b[?2004h", PASTE_OFF[] = "\x1b[?2004l";
static const char PASTE_END[] = "\x1b[201~";

static char *show_prompt(EditLine *edit)
{
    struct term *t;

    el_get(edit, EL_CLIENTDATA, &t);
    return (char *)(uintptr_t)t->prompt;
}

/* Takes what is pasted as text, whatever is in it. */
static unsigned char paste(EditLine *edit, int c)
{
    const size_t n_end = strlen(PASTE_END);
    struct buf text;
    char b;

    (void)c;
    buf_init(&text, PASTE_MAX);
    while (!text.failed && read(STDIN_FILENO, &b, 1) == 1) {
        buf_putc(&text, b == '\r' ? '\n' : b);
        if (text.len >= n_end && memcmp(text.data + text.len - n_end, PASTE_END, n_end) == 0) {
            text.len -= n_end;
            text.data[text.len] = '\0';
            break;
        }
    }
    const bool ok = text.len == 0 || el_insertstr(edit, buf_str(&text)) == 0;
    buf_deinit(&text);
    return ok ? CC_REFRESH : CC_ERROR;
}

static unsigned char interrupt(EditLine *edit, int c)
{
    struct term *t;

    (void)c;
    el_get(edit, EL_CLIENTDATA, &t);
    t->interrupted = true;
    fputs("^C\n", stdout);
    return CC_EOF;
}

/* Makes the folders of a path. */
static void make_folders(char *path)
{
    for (char *p = path + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
}

static void find_history(struct term *t)
{
    const char *given = getenv("SLM_HISTORY"), *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n = 0;

    if (given) {
        n = snprintf(t->path, sizeof t->path, "%s", given);
    } else if (state && *state == '/') {
        n = snprintf(t->path, sizeof t->path, "%s/slm/history", state);
    } else if (home && *home == '/') {
        n = snprintf(t->path, sizeof t->path, "%s/.local/state/slm/history", home);
    }
    if (n < 0 || (size_t)n >= sizeof t->path) {
        t->path[0] = '\0';
    }
}

/* libedit reads characters by the locale; one without UTF-8 would cut them. */
static void use_utf8(void)
{
    const char *set = setlocale(LC_CTYPE, "");

    if (!set || (!strstr(set, "UTF-8") && !strstr(set, "utf8"))) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

static void edit_open(struct term *t)
{
    HistEvent event;

    use_utf8();
    find_history(t);
    t->edit = el_init("slm", stdin, stdout, stderr);
    t->history = t->edit ? history_init() : NULL;
    if (!t->history) {
        return;
    }
    history(t->history, &event, H_SETSIZE, HISTORY_MAX);
    history(t->history, &event, H_SETUNIQUE, 1);
    if (t->path[0]) {
        history(t->history, &event, H_LOAD, t->path);
    }
    el_set(t->edit, EL_CLIENTDATA, t);
    el_set(t->edit, EL_PROMPT, show_prompt);
    el_set(t->edit, EL_EDITOR, "emacs");
    el_set(t->edit, EL_HIST, history, t->history);
    el_set(t->edit, EL_ADDFN, "slm-paste", "take pasted text", paste);
    el_set(t->edit, EL_BIND, "\\e[200~", "slm-paste", NULL);
    el_set(t->edit, EL_ADDFN, "slm-interrupt", "drop the line", interrupt);
    el_set(t->edit, EL_BIND, "^C", "slm-interrupt", NULL);
    el_set(t->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    /* Ctrl-C is a key while a line is edited. */
    el_set(t->edit, EL_SETTY, "-d", "-isig", NULL);
    el_source(t->edit, NULL);
}

static void edit_close(struct term *t)
{
    HistEvent event;

    if (t->history && t->path[0]) {
        make_folders(t->path);
        const mode_t mask = umask(0077);
        history(t->history, &event, H_SAVE, t->path);
        umask(mask);
    }
    if (t->history) {
        history_end(t->history);
    }
    if (t->edit) {
        el_end(t->edit);
    }
}

/* libedit prints the prompt and only then makes Ctrl-C and Ctrl-D keys.  One that is pressed
 * between would be a signal or an end that nobody waits for, so they are keys before. */
static bool keys_begin(struct term *t)
{
    if (tcgetattr(STDIN_FILENO, &t->usual) != 0) {
        return false;
    }
    struct termios keys = t->usual;
    keys.c_lflag &= ~(tcflag_t)(ISIG | ICANON | ECHO);
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) == 0;
}

static const char *edit_gets(struct term *t, int *n)
{
    const bool keys = keys_begin(t);

    fputs(PASTE_ON, stdout);
    fflush(stdout);
    const char *s = el_gets(t->edit, n);
    fputs(PASTE_OFF, stdout);
    fflush(stdout);
    if (t->interrupted) {
        el_reset(t->edit);
    }
    if (keys) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &t->usual);
    }
    return s;
}

static enum term_event edit_line(struct term *t, const char *prompt, struct buf *line)
{
    int n;

    t->prompt = prompt;
    t->interrupted = false;
    const char *s = edit_gets(t, &n);
    if (t->interrupted) {
        return TERM_INTERRUPT;
    }
    if (!s || n <= 0) {
        return TERM_END;
    }
    buf_add(line, s, (size_t)n - (s[n - 1] == '\n'));
    return TERM_LINE;
}

#endif

/* ---- the whole --------------------------------------------------------------------------- */

struct term *term_new(void)
{
    struct term *t = mem_zalloc(1, sizeof *t);

    if (!t) {
        return NULL;
    }
    t->interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
#ifdef HAVE_LIBEDIT
    if (t->interactive) {
        edit_open(t);
    }
#endif
    return t;
}

void term_free(struct term *t)
{
    if (!t) {
        return;
    }
#ifdef HAVE_LIBEDIT
    edit_close(t);
#endif
    free(t->line);
    mem_free(t);
}

enum term_event term_line(struct term *t, const char *prompt, struct buf *line)
{
#ifdef HAVE_LIBEDIT
    if (t->edit) {
        return edit_line(t, prompt, line);
    }
#endif
    return plain_line(t, prompt, line);
}

bool term_edits(const struct term *t)
{
#ifdef HAVE_LIBEDIT
    return t->edit != NULL;
#else
    (void)t;
    return false;
#endif
}

void term_remember(struct term *t, const char *text)
{
#ifdef HAVE_LIBEDIT
    HistEvent event;

    if (t->history && *text) {
        history(t->history, &event, H_ENTER, text);
    }
#else
    (void)t;
    (void)text;
#endif
}
