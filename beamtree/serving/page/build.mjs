// Writes dist/ from src/. dist/build.json records what was built from what, so that a test can compare without Node.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const sources = join(here, "src");
const target = join(here, "dist");

const sha256 = (content) => createHash("sha256").update(content).digest("hex");
const digests = (folder, names) =>
  Object.fromEntries(names.map((name) => [name, sha256(readFileSync(join(folder, name)))]));

rmSync(target, { recursive: true, force: true });
mkdirSync(target);
await build({
  entryPoints: [join(sources, "page.ts"), join(sources, "page.css")],
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  logLevel: "warning",
});
const version = (name) => sha256(readFileSync(join(target, name))).slice(0, 12);
const html = readFileSync(join(sources, "index.html"), "utf8").replace(
  /(src|href)="(page\.(?:js|css))"/g,
  (_, attribute, name) => `${attribute}="${name}?v=${version(name)}"`,
);
writeFileSync(join(target, "index.html"), html);
writeFileSync(join(target, "favicon.svg"), readFileSync(join(sources, "favicon.svg")));

const recorded = {
  sources: {
    ...digests(here, ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"]),
    ...digests(
      here,
      readdirSync(sources)
        .sort()
        .map((name) => `src/${name}`),
    ),
  },
  files: digests(target, readdirSync(target).sort()),
};
writeFileSync(join(target, "build.json"), JSON.stringify(recorded, null, 2) + "\n");
