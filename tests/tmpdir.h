/* tmpdir.h - a fresh directory for the files of a test. */
#ifndef TMPDIR_H
#define TMPDIR_H

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "test.h"

/* A fresh directory that `remove_tree` takes away again. */
static char dir[128];

static inline void make_dir(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(dir, sizeof dir, "%s/slm-test-XXXXXX", tmp != NULL ? tmp : P_tmpdir);
    CHECK(mkdtemp(dir) != NULL);
}

static inline void remove_tree(void)
{
    char command[160];

    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK_EQ(system(command), 0);
}

/* The path of a file in it; valid until the next call. */
static inline const char *in_dir(const char *name)
{
    static char path[320];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* Writes a file below the directory, making the folders on the way. */
static inline void put(const char *name, const char *content)
{
    const char *path = in_dir(name);
    char part[320];
    slm_error err;

    for (const char *s = strchr(path + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(s - path), path);
        mkdir(part, 0777);
    }
    CHECK(file_write(path, content, strlen(content), &err));
}

#endif
