// versus_llama.mjs - llama.cpp's side of bench/versus, through the bindings of node-llama-cpp.
//
//   node versus_llama.mjs MODULES node                             Node alone: its own start
//   node versus_llama.mjs MODULES run MODEL THREADS CONTEXT N TEXT N tokens after a text
//   node versus_llama.mjs MODULES serve MODEL THREADS              tests named on standard input
//
// MODULES is the folder with node_modules.  The package is used for what it loads: every test calls
// llama_decode through the bindings directly, as llama-bench does, so that nothing of JavaScript
// is measured but one call per step.  Settings are llama.cpp's defaults: mapped file, weights
// repacked where it has a layout for them, flash attention "auto", keys and values in f16, steps of
// at most 512 tokens.
import { readFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const STEP = 512;             // tokens per call, llama.cpp's default micro-batch
const LONGEST = 2048 + 64;    // tokens of a test after its depth
const [modules, mode, file, threads, ...rest] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(modules), "node_modules", "x"));

// The package's own way to its libraries.
async function loadWithPackage() {
    const entry = require.resolve("node-llama-cpp");
    const { getLlama } = await import(pathToFileURL(entry).href);
    const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
    return llama._bindings;
}

// The least that Node can do: the same library without the package's JavaScript.
async function loadDirectly() {
    const target = `linux-${process.arch}`;
    const folder = path.join(path.resolve(modules), "node_modules/@node-llama-cpp", target, "bins",
                             target);
    const bindings = require(path.join(folder, "llama-addon.node"));
    bindings.setLogger(() => {});
    bindings.loadBackends();
    if (bindings.getGpuType() == null) {
        bindings.loadBackends(folder);
    }
    await bindings.init();
    return bindings;
}

// The name of the library for this CPU, among those the package has for each generation.
function variant() {
    const found = readFileSync("/proc/self/maps", "utf8").match(/libggml-cpu-(\w+)\.so/);
    return found ? found[1] : "unknown";
}

async function openModel(bindings) {
    const model = new bindings.AddonModel(file, { addonExports: bindings, useMmap: true });
    if (!await model.init()) {
        throw new Error(`llama.cpp cannot load ${file}`);
    }
    return model;
}

async function openContext(bindings, model, contextSize, sequences) {
    const context = new bindings.AddonContext(model, {
        contextSize, sequences, batchSize: STEP, threads: Number(threads), flashAttention: "auto",
    });
    if (!await context.init()) {
        throw new Error("llama.cpp cannot make a context");
    }
    return context;
}

// Appends ids to sequence 0 at a position and computes the logits after the last one.
async function feed(context, at, ids) {
    let last = -1;
    for (let i = 0; i < ids.length; i += STEP) {
        const part = ids.subarray(i, i + STEP);
        const ends = i + STEP >= ids.length;
        context.initBatch(part.length);
        const logits = context.addToBatch(0, at + i, part,
                                          Uint32Array.from(ends ? [part.length - 1] : []));
        last = ends ? logits[0] : last;
        await context.decodeBatch();
    }
    return last;
}

// Tokens that mean nothing, chosen as `slm bench` does.
function someIds(n, salt = 0) {
    return Uint32Array.from({ length: n }, (_, i) => 100 + ((i + 1) * 7919 + salt * 104729) % 30000);
}

async function run() {
    const [contextSize, n, text] = [Number(rest[0]), Number(rest[1]), rest[2]];
    const bindings = await loadDirectly();
    const model = await openModel(bindings);
    const context = await openContext(bindings, model, contextSize, 1);
    const sampler = new bindings.AddonSampler(model);
    sampler.applyConfig({ temperature: 0 });
    let ids = model.tokenize(text, true);
    if (model.shouldPrependBosToken() && ids[0] !== model.tokenBos()) {
        ids = Uint32Array.of(model.tokenBos(), ...ids);
    }
    const nPrompt = ids.length;
    for (let i = 0, at = 0; i < n; i++) {
        const logits = await feed(context, at, ids);
        const id = await context.sampleToken(logits, sampler);
        if (i === 0) {
            writeSync(1, JSON.stringify({ n_prompt: nPrompt, variant: variant() }) + "\n");
        }
        at += ids.length;
        ids = Uint32Array.of(id);
    }
    process.exit(0);
}

class Tests {
    constructor(bindings, model) {
        this.bindings = bindings;
        this.model = model;
        this.contexts = {};
    }

    // One context for each depth, made when it is first asked for and left with those tokens in it.
    async context(depth) {
        if (!this.contexts[depth]) {
            const context = await openContext(this.bindings, this.model, depth + LONGEST, 1);
            await feed(context, 0, someIds(depth + 64));
            context.removeTokenCellsFromSequence(0, depth, -1);
            this.contexts[depth] = context;
        }
        return this.contexts[depth];
    }

    async prompt({ n, depth }) {
        return this.timed(depth, (context) => feed(context, depth, someIds(n)));
    }

    async gen({ n, depth }) {
        const ids = someIds(n, 1);
        return this.timed(depth, async (context) => {
            for (let i = 0; i < n; i++) {
                await feed(context, depth + i, ids.subarray(i, i + 1));
            }
        });
    }

    async timed(depth, work) {
        const context = await this.context(depth);
        const begin = performance.now();
        await work(context);
        const end = performance.now();
        context.removeTokenCellsFromSequence(0, depth, -1);
        return (end - begin) / 1e3;
    }

    async batch({ n, sequences }) {
        this.many ||= await openContext(this.bindings, this.model, sequences * (n + 64), sequences);
        const context = this.many;
        let begin = 0;
        for (let i = 0; i <= n; i++) {
            context.initBatch(sequences);
            for (let s = 0; s < sequences; s++) {
                context.addToBatch(s, i, someIds(1, i * sequences + s), Uint32Array.of(0));
            }
            await context.decodeBatch();
            begin ||= performance.now();     // as slm: once all sequences have a first token
        }
        const end = performance.now();
        for (let s = 0; s < sequences; s++) {
            context.removeTokenCellsFromSequence(s, 0, -1);
        }
        return (end - begin) / 1e3;
    }
}

async function serve() {
    const bindings = await loadWithPackage();
    const tests = new Tests(bindings, await openModel(bindings));
    console.log(JSON.stringify({ variant: variant() }));
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const test = JSON.parse(line);
        console.log(JSON.stringify({ seconds: await tests[test.kind](test) }));
    }
    process.exit(0);
}

if (mode === "node") {
    writeSync(1, "{}\n");
} else {
    await { run, serve }[mode]();
}
