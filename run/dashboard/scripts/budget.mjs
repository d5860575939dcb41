// Adds up the JavaScript that the first view needs, gzipped, and fails the
// build when it is over budget.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const budget = 38 * 1024;
const site = new URL("../site/built/", import.meta.url);
const html = readFileSync(new URL("index.html", site), "utf8");
const size = (name) => gzipSync(readFileSync(new URL(name, site)), { level: 9 }).length;
const initial = [...html.matchAll(/(?:src|href)="\/(assets\/[^"]+\.js)"/g)].map((match) => match[1]);
const later = readdirSync(new URL("assets/", site))
  .map((name) => `assets/${name}`)
  .filter((name) => name.endsWith(".js") && !initial.includes(name));
const sum = (names) => names.reduce((bytes, name) => bytes + size(name), 0);
const kilobytes = (bytes) => `${(bytes / 1024).toFixed(1)} KB`;
console.log(`initial JavaScript ${kilobytes(sum(initial))} gzipped (budget ${kilobytes(budget)}), loaded later `
  + `${kilobytes(sum(later))}`);
const over = sum(initial) - budget;
if (over > 0) console.error(`initial JavaScript is ${sum(initial)} bytes: over by ${over}`);
if (initial.length === 0 || over > 0) process.exit(1);
