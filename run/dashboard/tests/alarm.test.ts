import { expect, test, vi } from "vitest";
import { alarming, announcement, Told } from "../src/logic/alarm";
import type { Incident } from "../src/logic/incidents";
import type { Overview } from "../src/logic/overview";
import { incident } from "./incident";

const ids = (found: Incident[]) => found.map(({ id }) => id);
const some = (...numbers: number[]) => ({ incidents: numbers.map((id) => incident({ id })) });

test("what is late, taken, cleared or in maintenance makes no sound", () => {
  const incidents = [
    incident({ id: 2, late: true }), incident({ id: 3, state: "taken" }), incident({ id: 4, silenced: true }),
    incident({ id: 5 }), incident({ id: 6, breaking: false }),
  ];
  expect(ids(alarming({ incidents }))).toEqual([5]);
});

test("an incident is told once, when it comes, and again when it calls again", () => {
  const told = new Told();
  expect(ids(told.next(some(1))), "seen on the page that begins").toEqual([]);
  expect(ids(told.next(some(3, 1, 2))), "in the service's order").toEqual([3, 2]);
  expect(ids(told.next(some(1, 2, 3)))).toEqual([]);
  expect(ids(told.next(some()))).toEqual([]);
  expect(ids(told.next(some(2))), "it comes back").toEqual([]);
  expect(ids(told.next({ incidents: [incident({ id: 2, state: "taken" })] }))).toEqual([]);
  expect(ids(told.next(some(2))), "it calls again").toEqual([2]);
});

test("one that becomes critical calls again, once", () => {
  const told = new Told();
  const next = (severity: Incident["severity"]) => ids(told.next({ incidents: [incident({ severity })] }));
  expect(next("warning"), "seen on the page that begins").toEqual([]);
  expect(next("critical")).toEqual([1]);
  expect(next("warning")).toEqual([]);
  expect(next("critical")).toEqual([]);
});

test("one that has cleared and comes back is the same", () => {
  const told = new Told();
  told.next({ incidents: [incident({ breaking: false })] });
  expect(ids(told.next(some(1)))).toEqual([]);
});

test("what still lasts when its maintenance ends is told then", () => {
  const told = new Told();
  told.next({ incidents: [incident({ silenced: true })] });
  expect(ids(told.next(some(1)))).toEqual([1]);
});

test("a notification names the place, the cause and the reason", () => {
  expect(announcement([incident({})]))
    .toEqual({ title: "Hall A is too hot", body: "Temperature above 27.0 °C for 12 min, peak 34.2 °C" });
  expect(announcement([incident({}), incident({ id: 2 })]).title).toBe("Hall A is too hot, and 1 more");
});

test("one that becomes critical is told again while the tab that told it keeps others from it", async () => {
  const held = new Set<string>();
  const locks = {
    request: (name: string, _: object, run: (lock: object | null) => unknown) => {
      run(held.has(name) ? null : {});
      held.add(name);
    },
  };
  const shown: (NotificationOptions & { renotify?: boolean })[] = [];
  const Shown = Object.assign(function Shown(_: string, options: NotificationOptions) {
    shown.push(options);
  }, { permission: "granted" });
  vi.stubGlobal("navigator", { locks });
  vi.stubGlobal("Notification", Shown);
  vi.stubGlobal("self", { Notification: Shown });
  vi.useFakeTimers();
  const { hearOverview, wish } = await import("../src/api/alarm");
  wish({ notification: true });
  const hear = (...incidents: Incident[]) => hearOverview({ incidents } as Overview);
  hear();
  for (const severity of ["warning", "warning", "critical", "critical"] as const) hear(incident({ severity }));
  vi.useRealTimers();
  vi.unstubAllGlobals();
  expect(shown.map(({ tag, requireInteraction, renotify }) => [tag, requireInteraction, renotify]))
    .toEqual([["1", false, true], ["1", true, true]]);
});
