/* main.c - the table of verbs.
 *
 * Exit codes: 0 done, 1 failed (one line says why), 2 wrong usage, 130 interrupted. */
#include <stdio.h>
#include <string.h>

#include "app/describe.h"
#include "app/net.h"
#include "app/out.h"
#include "app/verbs.h"

static const struct verb *const verbs[] = {
    &verb_run, &verb_chat, &verb_serve, &verb_info, &verb_tokenize, &verb_perplexity,
    &verb_quantize, &verb_pull, &verb_list, &verb_rm, &verb_bench, &verb_doctor,
};

enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static const struct verb *find_verb(const char *name)
{
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(verbs[i]->name, name) == 0) {
            return verbs[i];
        }
    }
    return NULL;
}

static int unknown_verb(const char *name)
{
    out_error("unknown verb \"%s\"; \"slm help\" lists the verbs", name);
    return 2;
}

static void print_help(void)
{
    out_printf("slm runs small language models from GGUF files on ordinary CPUs.\n\n");
    for (int i = 0; i < N_VERBS; i++) {
        out_printf("  slm %-11s %-20s %s\n", verbs[i]->name, verbs[i]->operands,
                   verbs[i]->summary);
    }
    out_printf("  slm %-11s %-20s %s\n", "help", "[VERB]", "this text, or all about a verb");
    out_printf("  slm %-11s %-20s %s\n", "--version", "", "version and build");
    out_printf("\nSLM_ISA=scalar|avx2|avx512|amx in the environment forces an instruction set;\n"
               "the results are the same.\n");
}

static int help(int argc, char **argv)
{
    if (argc > 2) {
        const struct verb *v = find_verb(argv[2]);
        if (!v) {
            return unknown_verb(argv[2]);
        }
        args_help(v);
    } else {
        print_help();
    }
    return out_finish(0);
}

static bool is(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

int main(int argc, char **argv)
{
    out_init();
    if (argc < 2) {
        out_error("no verb; \"slm help\" lists the verbs");
        return 2;
    }
    const char *word = argv[1];
    if (is(word, "--help", "help") || strcmp(word, "-h") == 0) {
        return help(argc, argv);
    }
    if (is(word, "--version", "-V")) {
        out_printf("slm %s\nbuilt by %s\n%s %s\n", slm_version(), slm_build(),
                   net_available(NULL) ? "downloads by" : "no downloads:", net_libraries());
        return out_finish(0);
    }
    if (strcmp(word, "--describe") == 0 && argc == 3 && describe(verbs, N_VERBS, argv[2])) {
        return out_finish(0);  /* for the build: manual page and completions */
    }
    if (word[0] == '-') {
        out_error("unknown option %s; \"slm help\" lists the verbs", word);
        return 2;
    }
    const struct verb *v = find_verb(word);
    return v ? v->run(argc - 1, argv + 1) : unknown_verb(word);
}
