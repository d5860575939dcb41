// Maintenance windows as a calendar: which days they fall on, on the clocks of their zone.
import type { components } from "../api/schema";
import { comesTwice } from "./format";

export type Window = components["schemas"]["MaintenanceBody"];

export const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** One of a zone: to make it costs a hundred times what it costs to read it. */
const clocks = new Map<string, Intl.DateTimeFormat>();

/** The date and time of day of an instant on the clocks of a zone, as if they were UTC. */
function wall(time: number, zone: string): number {
  const clock = clocks.get(zone) ?? new Intl.DateTimeFormat("en-US", {
    timeZone: zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric",
    minute: "numeric", second: "numeric",
  });
  clocks.set(zone, clock);
  const parts = clock.formatToParts(time);
  const of = (type: string) => Number(parts.find((part) => part.type === type)?.value);
  return Date.UTC(of("year"), of("month") - 1, of("day"), of("hour"), of("minute"), of("second"));
}

/** The instant at which the clocks of a zone show a time, which is given as if it were UTC. */
export function instantOf(shown: number, zone: string): number {
  // The offset at the guess may be that of the other side of a change of the clocks: once more at the first result.
  const first = shown - (wall(shown, zone) - shown);
  return shown - (wall(first, zone) - first);
}

/** The last time that an input takes: without one Chromium lets six digits be typed for a year. */
export const lastInput = "9999-12-31T23:59";
export const lastDay = lastInput.slice(0, 10);

/** What an input of type datetime-local shows for an instant in a zone. */
export function inputValue(time: number, zone: string): string {
  return new Date(wall(time, zone)).toISOString().slice(0, 16);
}

/** The instant of what such an input shows. */
export function inputTime(value: string, zone: string): number {
  const shown = Date.parse(`${value}Z`);
  return Number.isNaN(shown) ? NaN : instantOf(shown, zone);
}

/** The same as the API takes it. An input that nobody changed keeps the instant it was given, which may be either
 * of an hour that comes twice. */
export function inputInstant(value: string, zone: string, given = NaN): string {
  const kept = !Number.isNaN(given) && inputValue(given, zone) === value;
  return new Date(kept ? given : inputTime(value, zone)).toISOString();
}

/** What an input means that shows a time which the clocks of a zone have twice or never. */
export function clocksChange(value: string, zone: string, given?: number): string | undefined {
  // Nor of a year that is being typed.
  if (!/^2\d{3}-/.test(value)) return undefined;
  const time = Date.parse(inputInstant(value, zone, given));
  const show = (at: number) => inputValue(at, zone);
  if (show(time) === value && !comesTwice(time, show)) return undefined;
  const clock = new Intl.DateTimeFormat(undefined,
    { timeZone: zone, hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
  return `Clocks change then. This is ${clock.format(time)}.`;
}

export interface Occurrence {
  window: Window;
  start: number;
  end: number;
}

const day = 86_400_000;

/** The occurrences of windows that touch a range of milliseconds, oldest first. */
export function occurrences(windows: readonly Window[], from: number, to: number): Occurrence[] {
  const found = windows.flatMap((window) => {
    const first = Date.parse(window.start_time);
    const length = window.duration_s * 1000;
    if (window.weekdays.length === 0) return [{ window, start: first, end: first + length }];
    const until = window.until === null ? Infinity : Date.parse(window.until);
    const clock = wall(first, window.time_zone) % day;
    const all: Occurrence[] = [];
    // A day more on either side: the days of the zone are not those of UTC.
    for (let date = Math.floor((from - length) / day) - 1; date <= Math.floor(to / day) + 1; date++) {
      if (!window.weekdays.includes(new Date(date * day).getUTCDay())) continue;
      const start = instantOf(date * day + clock, window.time_zone);
      if (start >= first && start < until) all.push({ window, start, end: start + length });
    }
    return all;
  });
  return found.filter(({ start, end }) => end > from && start < to).sort((a, b) => a.start - b.start);
}

/** "once", or "every Monday and Thursday". */
export function recurrence(window: Pick<Window, "weekdays">): string {
  if (window.weekdays.length === 0) return "once";
  if (window.weekdays.length === 7) return "every day";
  return `every ${new Intl.ListFormat("en").format(window.weekdays.map((index) => weekdays[index] ?? ""))}`;
}
