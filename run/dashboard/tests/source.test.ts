// What holds of the page's own source.
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const root = new URL("../src/", import.meta.url);
const files = (ending: string) => readdirSync(root, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(ending)).map((name) => ({ name, text: readFileSync(new URL(name, root), "utf8") }));

test("no component is longer than 150 lines", () => {
  const lengths = files(".tsx").flatMap(({ name, text }) =>
    // What begins at the margin ends with a bracket there.
    [...text.matchAll(/^(?:export )?(?:default )?(?:function|const|class) (\w+)(?:.*;$|[^]*?^[)}\]](?!.*[{(]$))/gm)]
      .map(([whole, what]) => ({ what: `${name} ${what}`, lines: whole.split("\n").length })));
  expect(lengths.length).toBeGreaterThan(200);
  expect(lengths.find(({ what }) => what.endsWith(" Shell"))?.lines).toBeGreaterThan(20);
  expect(lengths.filter(({ lines }) => lines > 150)).toEqual([]);
});

test("no line is longer than 120 characters", () => {
  const written = ["src", "tests", "e2e", "scripts", "."].flatMap((folder) =>
    readdirSync(new URL(`../${folder}/`, import.meta.url), { recursive: folder !== ".", encoding: "utf8" })
      .map((name) => `${folder}/${name}`).filter((name) => /(?<!schema\.d)\.(tsx?|mjs|css)$/.test(name)));
  expect(written.length).toBeGreaterThan(150);
  const long = written.flatMap((name) => readFileSync(new URL(`../${name}`, import.meta.url), "utf8").split("\n")
    .flatMap((line, i) => (line.length > 120 ? [`${name}:${i + 1}`] : [])));
  expect(long).toEqual([]);
});

test("a colour is written once for both schemes", () => {
  const styles = files(".css").map(({ text }) => text).join("\n");
  expect(styles).toContain("light-dark(");
  expect(styles).not.toContain("prefers-color-scheme");
  const chosen = [...styles.matchAll(/\[data-theme[^{]*\{([^}]*)\}/g)].map(([, set]) => (set ?? "").trim());
  expect(chosen).toEqual(["color-scheme: light;", "color-scheme: dark;"]);
});
