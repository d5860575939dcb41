// Takes the pictures of README from `make run`, once the cooling of a room has failed: make pictures.
// With a folder as an argument (FOLDER=) it also takes there what a first start shows,
// from the 5th second to the tenth minute.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "@playwright/test";

const root = new URL("../../../", import.meta.url).pathname;
const images = join(root, "docs/images");
const [folder] = process.argv.slice(2);
const times = folder ? [5, 15, 30, 60, 120, 180, 240, 300, 420, 600] : [];

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

const data = mkdtempSync(join(tmpdir(), "coldaisle-pictures-"));
const [api, gateway] = [await freePort(), await freePort()];
const began = Date.now();
const system = spawn(join(root, "bin/coldaisle"), ["--api-port", api, "--gateway-port", gateway, "--data", data],
  { stdio: ["ignore", "pipe", "inherit"] });
let said = "";
await new Promise((resolve, reject) => {
  system.once("exit", (code) => reject(new Error(`the system ended with ${code}: ${said}`)));
  system.stdout.on("data", (chunk) => {
    said += chunk;
    if (said.includes("Ctrl-C")) resolve();
  });
});
system.stdout.on("data", (chunk) => process.stdout.write(`${Math.round((Date.now() - began) / 1000)} s: ${chunk}`));
const ended = new Promise((resolve) => system.once("exit", resolve));
const base = `http://127.0.0.1:${api}`;
const [, email, password] = /Sign in +(\S+) +(\S+)/.exec(said);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"],
});
const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
await page.goto(base);
await page.getByLabel("E-mail").fill(email);
await page.getByLabel("Password").fill(password);
await page.getByRole("button", { name: "Sign in" }).click();
await page.getByRole("heading", { name: "Now", exact: true }).waitFor({ state: "attached" });
for (const path of [images, ...(folder ? [folder] : [])]) mkdirSync(path, { recursive: true });
for (const at of times) {
  await page.waitForTimeout(Math.max(0, began + at * 1000 - Date.now()));
  await page.screenshot({ path: join(folder, `${at}.png`) });
}
// The cooling has failed: the incident is critical, and what it began with is an hour's curve.
const sentence = page.locator(".sentence.critical");
await sentence.waitFor({ timeout: 1_800_000 });
await page.waitForTimeout(60_000);
const shoot = async (name) => {
  await page.locator("main").getByText("Loading", { exact: false }).first().waitFor({ state: "detached" });
  await page.mouse.move(0, 0);
  await page.waitForTimeout(3000);
  await page.screenshot({ path: join(images, `${name}.png`) });
};
await shoot("now");
await sentence.getByRole("link", { name: "Open" }).click();
await page.locator(".chart canvas").first().waitFor();
await shoot("incident");
await page.goto(`${base}/sensors/sim-r1-n1`);
await page.locator(".chart canvas").first().waitFor();
await shoot("sensor");
await browser.close();
system.kill("SIGTERM");
await ended;
rmSync(data, { recursive: true, force: true });
