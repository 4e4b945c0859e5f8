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
  entryPoints: ["page.ts", "page.css", "docs.ts", "docs.css"].map((name) => join(sources, name)),
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  logLevel: "warning",
});
const version = (name) => sha256(readFileSync(join(target, name))).slice(0, 12);
for (const page of ["index.html", "docs.html"]) {
  const html = readFileSync(join(sources, page), "utf8").replace(
    /(src|href)="((?:page|docs)\.(?:js|css))"/g,
    (_, attribute, name) => `${attribute}="${name}?v=${version(name)}"`,
  );
  writeFileSync(join(target, page), html);
}
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
