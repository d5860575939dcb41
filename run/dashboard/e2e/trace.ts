// What the page costs the processor. The processor time of a task is the same on a busy
// machine; its duration, which includes the time of other programs, is not.
import type { Page } from "@playwright/test";

/** How many times slower than this one a processor is that the promises are about. */
export const slower = 4;

interface Event { name: string; ph: string; pid: number; tid: number; ts: number; dur: number; tdur?: number; args: {
  name?: string; data?: { type?: string };
} }

export interface Cost {
  /** Milliseconds of all tasks of the main thread, and of the longest. */
  all: number;
  longest: number;
  /** Of each press of a pointer or key until the next picture. */
  interactions: { type: string; ms: number }[];
}

const presses = ["pointerdown", "pointerup", "click", "keydown", "keyup"];

/** What is done by the page's main thread meanwhile, in processor time of the slower machine. */
export async function costOf(page: Page, run: () => Promise<unknown>): Promise<Cost> {
  const browser = page.context().browser();
  if (!browser) throw new Error("no browser to trace");
  await browser.startTracing(page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline"] });
  await run();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: Event[] };
  const main = new Set(traceEvents.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain")
    .map(({ pid, tid }) => `${pid} ${tid}`));
  const events = traceEvents.filter(({ ph, pid, tid }) => ph === "X" && main.has(`${pid} ${tid}`))
    .sort((a, b) => a.ts - b.ts);
  const tasks = events.filter(({ name }) => name === "RunTask");
  const sum = (some: Event[]) => some.reduce((ms, { tdur = 0 }) => ms + (tdur * slower) / 1000, 0);
  const interactions = events.filter(({ name, args }) =>
    name === "EventDispatch" && presses.includes(args.data?.type ?? "")).map((press) => {
    const end = press.ts + press.dur;
    const picture = events.find(({ name, ts, pid }) => name === "Commit" && ts >= end && pid === press.pid);
    const until = picture?.ts ?? end;
    return { type: press.args.data?.type ?? "",
      ms: sum(tasks.filter(({ ts, dur, pid }) => pid === press.pid && ts + dur >= press.ts && ts <= until)) };
  });
  return { all: sum(tasks), longest: Math.max(0, ...tasks.map((task) => sum([task]))), interactions };
}
