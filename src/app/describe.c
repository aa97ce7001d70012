/* describe.c - one table of options, four ways to write it down. */
#include "app/describe.h"

#include <string.h>

#include "app/out.h"
#include "slm.h"

/* Calls fn for each option of a verb, --help as the last. */
typedef void each_fn(const struct verb *verb, const struct opt *o);

static void each_opt(const struct verb *verb, each_fn *fn)
{
    static const struct opt help = { "help", 'h', OPT_FLAG, 0, NULL, "show help", 0, 0 };
    const struct opt *o;

    for (int i = 0; (o = args_opt(verb, i, NULL)) != NULL; i++) {
        fn(verb, o);
    }
    fn(verb, &help);
}

static bool takes_value(const struct opt *o)
{
    return o->type != OPT_FLAG;
}

/* Whether the value is or may be a file: the tables call such values FILE and MODEL. */
static bool takes_file(const struct opt *o)
{
    return o->arg && (strstr(o->arg, "FILE") || strstr(o->arg, "MODEL"));
}

/* ---- man --------------------------------------------------------------------------------- */

/* Text for roff: no line may begin with . or ', a backslash is an escape, and a minus is not a
 * hyphen. */
static void roff(const char *s)
{
    for (bool first = true; *s; first = *s++ == '\n') {
        if (first && (*s == '.' || *s == '\'')) {
            out_printf("\\&");
        }
        out_printf(*s == '\\' ? "\\e" : *s == '-' ? "\\-" : "%c", *s);
    }
}

static void man_opt(const struct verb *verb, const struct opt *o)
{
    (void)verb;
    out_printf(".TP\n.B ");
    if (o->letter) {
        out_printf("\\-%c, ", o->letter);
    }
    out_printf("\\-\\-");
    roff(o->name);
    if (takes_value(o)) {
        out_printf(" \\fI");
        roff(o->arg);
        out_printf("\\fR");
    }
    out_printf("\n");
    roff(o->help);
    out_printf("\n");
}

static void man(const struct verb *const *verbs, int n)
{
    out_printf(".TH SLM 1 \"\" \"slm %s\" \"User Commands\"\n.SH NAME\n"
               "slm \\- run small language models from GGUF files on ordinary CPUs\n"
               ".SH SYNOPSIS\n", slm_version());
    for (int i = 0; i < n; i++) {
        out_printf(".B slm %s\n[\\fIOPTION\\fR]... ", verbs[i]->name);
        roff(verbs[i]->operands);
        out_printf("\n.br\n");
    }
    out_printf(".B slm help\n[\\fIVERB\\fR]\n.br\n.B slm \\-\\-version\n.SH COMMANDS\n");
    for (int i = 0; i < n; i++) {
        out_printf(".SS slm %s ", verbs[i]->name);
        roff(verbs[i]->operands);
        out_printf("\n");
        roff(verbs[i]->summary);
        out_printf("\n");
        each_opt(verbs[i], man_opt);
        if (verbs[i]->more) {
            out_printf(".PP\n");
            roff(verbs[i]->more);
        }
    }
    out_printf(".SH ENVIRONMENT\n.TP\n.B SLM_ISA\n"
               "scalar, avx2, avx512 or amx forces an instruction set; the results are the same.\n"
               ".TP\n.B SLM_HISTORY\nThe file with what was typed in slm chat; empty for none.\n"
               ".TP\n.B NO_COLOR\nNo colours, whatever it is set to.\n"
               ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 130 interrupted.\n");
}

/* ---- bash -------------------------------------------------------------------------------- */

static void bash_word(const struct verb *verb, const struct opt *o)
{
    (void)verb;
    out_printf(" --%s", o->name);
    if (o->letter) {
        out_printf(" -%c", o->letter);
    }
}

/* What follows an option that takes a value: words of a choice, else files. */
static void bash_value(const struct verb *verb, const struct opt *o)
{
    if (!takes_value(o)) {
        return;
    }
    out_printf("        %s:--%s", verb->name, o->name);
    if (o->letter) {
        out_printf("|%s:-%c", verb->name, o->letter);
    }
    if (o->type == OPT_CHOICE) {
        out_printf(") words='");
        for (const char *p = o->arg; *p; p++) {
            out_printf("%c", *p == '|' ? ' ' : *p);
        }
        out_printf("' ;;\n");
    } else {
        out_printf(takes_file(o) ? ") files=1 ;;\n" : ") return ;;\n");
    }
}

static void bash(const struct verb *const *verbs, int n)
{
    out_printf("# Completion of slm for bash.\n_slm()\n{\n"
               "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
               "    local verb=${COMP_WORDS[1]} words= files=\n"
               "    COMPREPLY=()\n"
               "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='");
    for (int i = 0; i < n; i++) {
        out_printf("%s ", verbs[i]->name);
    }
    out_printf("help --version'\n"
               "    elif [ \"$verb\" = help ]; then\n        words='");
    for (int i = 0; i < n; i++) {
        out_printf(i > 0 ? " %s" : "%s", verbs[i]->name);
    }
    out_printf("'\n    else\n        case $verb:$before in\n");
    for (int i = 0; i < n; i++) {
        each_opt(verbs[i], bash_value);
    }
    out_printf("        *)\n            files=1\n            case $verb:$word in\n");
    for (int i = 0; i < n; i++) {
        out_printf("            %s:-*) words='", verbs[i]->name);
        each_opt(verbs[i], bash_word);
        out_printf("' files= ;;\n");
    }
    out_printf("            esac ;;\n        esac\n    fi\n"
               "    if [ -n \"$words\" ]; then\n"
               "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
               "    elif [ -n \"$files\" ]; then\n"
               "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
               "    fi\n}\ncomplete -o filenames -F _slm slm\n");
}

/* ---- zsh --------------------------------------------------------------------------------- */

/* Text within single quotes and an _arguments specification. */
static void zsh_text(const char *s)
{
    for (; *s; s++) {
        if (*s == '\'') {
            out_printf("'\\''");
        } else {
            out_printf(strchr("[]:\\", *s) ? "\\%c" : "%c", *s);
        }
    }
}

static void zsh_one(const struct opt *o, const char *dashes, const char *name)
{
    out_printf("            '%s%s%s[", o->type == OPT_LIST ? "*" : "", dashes, name);
    zsh_text(o->help);
    out_printf("]");
    if (o->type == OPT_CHOICE) {
        out_printf(":value:(");
        for (const char *p = o->arg; *p; p++) {
            out_printf("%c", *p == '|' ? ' ' : *p);
        }
        out_printf(")");
    } else if (takes_value(o)) {
        out_printf(takes_file(o) ? ":file:_files" : ":value: ");
    }
    out_printf("' \\\n");
}

static void zsh_opt(const struct verb *verb, const struct opt *o)
{
    const char letter[2] = { o->letter, '\0' };

    (void)verb;
    zsh_one(o, "--", o->name);
    if (o->letter) {
        zsh_one(o, "-", letter);
    }
}

static void zsh(const struct verb *const *verbs, int n)
{
    out_printf("#compdef slm\n# Completion of slm for zsh.\n_slm()\n{\n"
               "    local -a verbs\n    verbs=(\n");
    for (int i = 0; i < n; i++) {
        out_printf("        '%s:", verbs[i]->name);
        zsh_text(verbs[i]->summary);
        out_printf("'\n");
    }
    out_printf("        'help:all about a verb'\n    )\n"
               "    if (( CURRENT == 2 )); then\n        _describe verb verbs\n        return\n"
               "    fi\n    local verb=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
               "    case $verb in\n    help) _describe verb verbs ;;\n");
    for (int i = 0; i < n; i++) {
        out_printf("    %s)\n        _arguments \\\n", verbs[i]->name);
        each_opt(verbs[i], zsh_opt);
        out_printf("            '*:file:_files' ;;\n");
    }
    out_printf("    esac\n}\n_slm \"$@\"\n");
}

/* ---- fish -------------------------------------------------------------------------------- */

/* Text within single quotes. */
static void fish_text(const char *s)
{
    for (; *s; s++) {
        out_printf(*s == '\'' || *s == '\\' ? "\\%c" : "%c", *s);
    }
}

static void fish_opt(const struct verb *verb, const struct opt *o)
{
    out_printf("complete -c slm -n '__fish_seen_subcommand_from %s' -l %s", verb->name, o->name);
    if (o->letter) {
        out_printf(" -s %c", o->letter);
    }
    if (takes_value(o)) {
        out_printf(takes_file(o) ? " -r -F" : " -x");
    }
    if (o->type == OPT_CHOICE) {
        out_printf(" -a '");
        for (const char *p = o->arg; *p; p++) {
            out_printf("%c", *p == '|' ? ' ' : *p);
        }
        out_printf("'");
    }
    out_printf(" -d '");
    fish_text(o->help);
    out_printf("'\n");
}

static void fish(const struct verb *const *verbs, int n)
{
    out_printf("# Completion of slm for fish.\n");
    for (int i = 0; i < n; i++) {
        out_printf("complete -c slm -n __fish_use_subcommand -x -a %s -d '", verbs[i]->name);
        fish_text(verbs[i]->summary);
        out_printf("'\n");
    }
    out_printf("complete -c slm -n __fish_use_subcommand -x -a help -d 'all about a verb'\n");
    for (int i = 0; i < n; i++) {
        each_opt(verbs[i], fish_opt);
    }
}

bool describe(const struct verb *const *verbs, int n_verbs, const char *what)
{
    static const struct {
        const char *name;
        void (*print)(const struct verb *const *verbs, int n);
    } kinds[] = { { "man", man }, { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, what) == 0) {
            kinds[i].print(verbs, n_verbs);
            return true;
        }
    }
    return false;
}
