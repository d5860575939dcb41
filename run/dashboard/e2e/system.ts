// Starts the whole local system for the tests, fills its demonstration with a
// day of history, and ends it after them.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seedDemo } from "./seed";

export default async function start(): Promise<() => Promise<void>> {
  const root = new URL("../../../", import.meta.url).pathname;
  const folder = mkdtempSync(join(tmpdir(), "coldaisle-dashboard-"));
  const binary = join(folder, "local");
  const data = join(folder, "data");
  // As processtest.Build does.
  const env = { ...process.env, CGO_ENABLED: "0" };
  execFileSync("go", ["build", "-trimpath", "-o", binary, "./run/local"], { cwd: root, env, stdio: "inherit" });

  const system = spawn(binary, ["--api-port", "0", "--gateway-port", "0", "--nodes", "8", "--history", "0", "--data",
    data], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<void>((resolve) => system.once("exit", () => resolve()));
  // What it says when it is up ends with the addresses.
  let said = "";
  await new Promise<void>((resolve, reject) => {
    const deadline = setTimeout(() => reject(new Error(`the local system did not start: ${said}`)), 300_000);
    system.once("exit", (code) => reject(new Error(`the local system ended with ${code}: ${said}`)));
    system.stdout.on("data", (chunk: Buffer) => {
      said += chunk;
      if (!said.includes("Ctrl-C")) return;
      clearTimeout(deadline);
      resolve();
    });
  });

  const port = readFileSync(join(data, "postgres/data/postmaster.pid"), "utf8").split("\n")[3];
  const password = readFileSync(join(data, "postgres/password"), "utf8").trim();
  process.env.COLDAISLE_URL = /Dashboard +(\S+)/.exec(said)?.[1];
  process.env.COLDAISLE_GATEWAY = /Gateway +(\S+)\/api/.exec(said)?.[1];
  process.env.COLDAISLE_FUNCTIONS = /Functions +(\S+)/.exec(said)?.[1];
  process.env.COLDAISLE_DATABASE = `postgres://coldaisle:${password}@127.0.0.1:${port}/coldaisle`;
  process.env.COLDAISLE_DEMO_PASSWORD = readFileSync(join(data, "demo_password"), "utf8").trim();
  await seedDemo();

  return async () => {
    system.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
}
