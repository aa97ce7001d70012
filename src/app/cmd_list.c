/* cmd_list.c - slm list and slm rm: what is in the cache of models. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "app/hub.h"
#include "app/out.h"
#include "app/verbs.h"
#include "base/error.h"

/* ---- list ------------------------------------------------------------------------ */

struct list_opts {
    bool known, json;
};

#define AT(field) offsetof(struct list_opts, field)

static const struct opt list_opts[] = {
    { "known", 0, OPT_FLAG, AT(known), NULL, "the names that need no repository", 0, 0 },
    { "json", 0, OPT_FLAG, AT(json), NULL, "print one JSON array", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

/* Prints a model of the cache, or appends it to the JSON array at arg. */
static void print_cached(void *arg, const struct cached_model *m)
{
    const char *alias = registry_alias_of(m->repo);
    const time_t when = (time_t)m->mtime;
    char date[32] = "";
    struct tm tm;

    if (arg) {
        json_array_append_new(arg, json_pack("{s:s, s:s, s:s*, s:s, s:I, s:i}", "repo", m->repo,
                                             "file", m->file, "alias", alias, "path", m->path,
                                             "bytes", (json_int_t)m->bytes, "files", m->shards));
        return;
    }
    if (localtime_r(&when, &tm)) {
        strftime(date, sizeof date, "%Y-%m-%d", &tm);
    }
    out_printf("%10s  %-10s  ", out_bytes(m->bytes), date);
    out_quoted(m->repo, strlen(m->repo), 0);
    out_printf("/");
    out_quoted(m->file, strlen(m->file), 0);
    out_printf(alias ? "  (%s)\n" : "\n", alias);
}

static void print_known(bool as_json)
{
    const char *name, *repo;
    json_t *list = as_json ? json_array() : NULL;

    for (size_t i = 0; registry_alias(i, &name, &repo); i++) {
        if (list) {
            json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "repo", repo));
        } else {
            out_printf("%-15s %s\n", name, repo);
        }
    }
    if (list) {
        out_json(list, true);
    }
}

static int cmd_list(int argc, char **argv)
{
    struct list_opts o = {0};
    struct operands rest;
    struct hub hub;
    slm_error err = {0};
    int code;

    if (!args_parse(&verb_list, argc, argv, &o, &rest, &code)) {
        return code;
    }
    if (rest.n > 0) {
        return args_usage(&verb_list, "takes no argument");
    }
    if (o.known) {
        print_known(o.json);
        return out_finish(0);
    }
    if (!hub_init(&hub, &err)) {
        return out_fail(&err);
    }
    json_t *list = o.json ? json_array() : NULL;
    const bool ok = cache_each(&hub, print_cached, list, &err);

    hub_deinit(&hub);
    if (list) {
        out_json(list, true);
    }
    return ok ? out_finish(0) : out_fail(&err);
}

const struct verb verb_list = {
    .name = "list",
    .operands = "",
    .summary = "show the models that were downloaded",
    .opts = list_opts,
    .run = cmd_list,
};

/* ---- rm -------------------------------------------------------------------------- */

static const struct opt rm_opts[] = {
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

/* The models that a name means. */
struct match {
    const struct model_ref *ref;
    struct model_ref found;   /* the first, with its file */
    int n;
};

static void match_cached(void *arg, const struct cached_model *m)
{
    const struct repo_file file = { m->file, m->bytes, "" };
    const struct repo_file *picked[MODEL_FILES_MAX];
    struct match *match = arg;
    size_t n;
    slm_error err = {0};

    if (strcmp(m->repo, match->ref->repo) != 0) {
        return;
    }
    /* Of a set only the first file is given here, so the others are missed after a match. */
    if (!registry_select(match->ref, &file, 1, picked, &n, &err) && m->shards == 1) {
        return;
    }
    if (match->n++ == 0) {
        match->found = *match->ref;
        match->found.quant[0] = 0;
        snprintf(match->found.file, sizeof match->found.file, "%s", m->file);
    }
}

static bool find_match(const struct hub *hub, const char *name, struct match *match,
                       struct model_refs *refs, slm_error *err)
{
    if (!registry_parse(name, refs, err)) {
        return false;
    }
    *match = (struct match){0};
    for (int i = 0; i < refs->n && match->n == 0; i++) {
        match->ref = &refs->item[i];
        if (!cache_each(hub, match_cached, match, err)) {
            return false;
        }
    }
    if (match->n > 1) {
        return slm_fail(err, SLM_E_ARG, "%.100s: there are %d models of this name; say which file "
                                        "(\"slm list\")", name, match->n);
    }
    return match->n == 1 || slm_fail(err, SLM_E_ARG, "%.100s is not in the cache", name);
}

static int cmd_rm(int argc, char **argv)
{
    struct operands rest;
    struct model_refs refs;
    struct match match;
    struct hub hub = {0};
    slm_error err = {0};
    uint64_t freed = 0;
    int code, nothing;

    if (!args_parse(&verb_rm, argc, argv, &nothing, &rest, &code)) {
        return code;
    }
    if (rest.n != 1) {
        return args_usage(&verb_rm, rest.n == 0 ? "no model" : "one model at a time");
    }
    if (hub_init(&hub, &err) && find_match(&hub, rest.item[0], &match, &refs, &err) &&
        cache_remove(&hub, &match.found, &freed, &err)) {
        out_printf("removed %s/%s, %s\n", match.found.repo, match.found.file, out_bytes(freed));
        code = out_finish(0);
    } else {
        code = out_fail(&err);
    }
    hub_deinit(&hub);
    return code;
}

const struct verb verb_rm = {
    .name = "rm",
    .operands = "MODEL",
    .summary = "remove a downloaded model",
    .more = "MODEL as for \"slm pull\".  Files that other snapshots of the cache need stay.\n",
    .opts = rm_opts,
    .run = cmd_rm,
};
