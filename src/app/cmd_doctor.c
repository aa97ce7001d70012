/* cmd_doctor.c - slm doctor: what the machine offers and whether the kernels are right
 * on it. */
#include <limits.h>
#include <string.h>

#include "app/out.h"
#include "app/verbs.h"
#include "base/cpu.h"

struct doctor_opts {
    int megabytes;
    bool json;
};

#define AT(field) offsetof(struct doctor_opts, field)

static const struct opt opts[] = {
    { "megabytes", 0, OPT_INT, AT(megabytes), "N",
      "memory to read for the bandwidth (512); more than the caches hold", 16, 1 << 20 },
    { "json", 0, OPT_FLAG, AT(json), NULL, "print one JSON object", 0, 0 },
    { NULL, 0, OPT_FLAG, 0, NULL, NULL, 0, 0 },
};

struct findings {
    slm_machine machine;
    double bandwidth;      /* bytes per second, negative where it could not be measured */
    bool kernels_right;
    slm_error kernels;     /* why not */
};

static void print_text(const struct findings *f)
{
    const slm_machine *m = &f->machine;

    out_printf("version           slm %s, built by %s\n", slm_version(), slm_build());
    out_printf("CPU features      %s\n", m->features);
    out_printf("instruction set   %s\n", m->isa);
    out_printf("usable cores      %d (%s)\n", m->cores, m->cores_why);
    out_printf("memory            %s, %s free\n", out_bytes(m->ram_bytes),
               out_bytes(cpu_ram_free_bytes()));
    if (f->bandwidth > 0) {
        out_printf("memory bandwidth  %.1f GB/s read by %d thread%s\n", f->bandwidth * 1e-9,
                   m->cores, m->cores == 1 ? "" : "s");
    } else {
        out_printf("memory bandwidth  not measured: not enough memory\n");
    }
    out_printf("kernels           %s\n", f->kernels_right ? "equal to the scalar definition"
                                                          : f->kernels.msg);
}

static void print_json(const struct findings *f)
{
    const slm_machine *m = &f->machine;

    out_json(json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:I, s:I, s:o, s:b, s:o}", "version",
                       slm_version(), "build", slm_build(), "features", m->features, "isa", m->isa,
                       "cores", m->cores, "cores_why", m->cores_why, "ram_bytes",
                       (json_int_t)m->ram_bytes, "ram_free_bytes",
                       (json_int_t)cpu_ram_free_bytes(), "bandwidth_bytes_per_s",
                       f->bandwidth > 0 ? json_real(f->bandwidth) : json_null(), "kernels_right",
                       (int)f->kernels_right, "kernels_error",
                       f->kernels_right ? json_null() : json_string(f->kernels.msg)),
             true);
}

static int cmd_doctor(int argc, char **argv)
{
    struct doctor_opts o = { .megabytes = 512 };
    struct findings f = {0};
    struct operands rest;
    slm_error err = {0};
    int code;

    if (!args_parse(&verb_doctor, argc, argv, &o, &rest, &code)) {
        return code;
    }
    if (rest.n > 0) {
        return args_usage(&verb_doctor, "takes no argument like \"%s\"", rest.item[0]);
    }
    if (!slm_machine_get(&f.machine, &err)) {
        return out_fail(&err);
    }
    size_t bytes = (size_t)o.megabytes << 20;
    const uint64_t fair = cpu_ram_free_bytes() / 4;
    bytes = bytes < fair ? bytes : (size_t)fair;
    f.bandwidth = slm_bandwidth(bytes, f.machine.cores);
    f.kernels_right = slm_selftest(&f.kernels);
    (o.json ? print_json : print_text)(&f);
    code = out_finish(0);
    return f.kernels_right ? code : 1;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .operands = "",
    .summary = "check the machine and the kernels",
    .more = "The exit code is 1 where a kernel does not compute what it must.\n",
    .opts = opts,
    .run = cmd_doctor,
};
