// Puts Redoc's bundle and its licences into site/built. In the bundle, an empty image
// stands for the logo that it would fetch from another host.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";

const redoc = new URL("node_modules/redoc/", import.meta.url);
const built = new URL("site/built/", import.meta.url);
const logo = '"https://cdn.redoc.ly/redoc/logo-mini.svg"';
const empty = `"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E"`;

const parts = readFileSync(new URL("bundles/redoc.standalone.js", redoc), "utf8").split(logo);
if (parts.length !== 2) throw new Error(`redoc's bundle names its logo ${parts.length - 1} times, want once`);

mkdirSync(built, { recursive: true });
copyFileSync(new URL("LICENSE", redoc), new URL("redoc.LICENSE.txt", built));
copyFileSync(new URL("bundles/redoc.standalone.js.LICENSE.txt", redoc), new URL("redoc.standalone.js.LICENSE.txt", built));
// Last: it is what make looks at.
writeFileSync(new URL("redoc.standalone.js", built), parts.join(empty));
