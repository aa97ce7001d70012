/* cmd_pull.c - slm pull: a model by name into the cache. */
#include "app/hub.h"
#include "app/interrupt.h"
#include "app/net.h"
#include "app/out.h"
#include "app/verbs.h"

struct pull_opts {
    bool force, quiet;
};

#define AT(field) offsetof(struct pull_opts, field)

static const struct opt opts[] = {
    { "force", 'f', OPT_FLAG, AT(force), NULL, "also what this machine or program cannot run", 0,
      0 },
    { "quiet", 0, OPT_FLAG, AT(quiet), NULL, "no progress and no notes", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

static int cmd_pull(int argc, char **argv)
{
    struct pull_opts o = {0};
    struct operands rest;
    struct hub hub = {0};
    slm_error err = {0};
    char *path = NULL;
    int code;

    if (!args_parse(&verb_pull, argc, argv, &o, &rest, &code)) {
        return code;
    }
    if (rest.n != 1) {
        return args_usage(&verb_pull, rest.n == 0 ? "no model; \"slm list --known\" shows names"
                                                  : "one model at a time");
    }
    out_set_quiet(o.quiet);
    const struct pull_options options = { .force = o.force };

    if (net_available(&err) && hub_init(&hub, &err) &&
        hub_pull(&hub, rest.item[0], &options, &path, &err)) {
        out_printf("%s\n", path);
        code = out_finish(0);
    } else {
        code = out_fail(&err);
    }
    mem_free(path);
    hub_deinit(&hub);
    return err.code == SLM_E_CANCELLED ? INTERRUPT_EXIT : code;
}

const struct verb verb_pull = {
    .name = "pull",
    .operands = "MODEL",
    .summary = "download a model",
    .more =
        "MODEL is a name (\"slm list --known\"), also with a quantisation (qwen3:Q8_0), or\n"
        "user/repo, user/repo:QUANT or user/repo/file.gguf of the hub.  All verbs take these\n"
        "names and download what is not in the cache.  The path of the file is printed.\n"
        "\n"
        "The header comes first: what this program cannot run, or what does not fit into this\n"
        "machine, is refused before the rest is downloaded.  A download that breaks is resumed\n"
        "by the next try, and counts only when its checksum is right.\n"
        "\n"
        "HF_HOME, HF_HUB_CACHE   where the cache is (~/.cache/huggingface/hub), shared with\n"
        "                        other tools\n"
        "HF_TOKEN                for repositories that are not for everybody\n"
        "HF_ENDPOINT             another server with the same interface\n"
        "HF_HUB_OFFLINE=1        no downloads\n",
    .opts = opts,
    .run = cmd_pull,
};
