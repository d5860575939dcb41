// Numbers and times for display.

const digits = (count: number) =>
  new Intl.NumberFormat("en", { minimumFractionDigits: count, maximumFractionDigits: count });
const oneDigit = digits(1);
const whole = new Intl.NumberFormat("en");

export const none = "–";

/** One decimal, the sensors' precision, or in another format. */
export function decimal(value: number | null | undefined, format = oneDigit): string {
  // No "-0.0".
  return value === null || value === undefined ? none : format.format(Math.abs(value) < 0.05 ? 0 : value);
}

export function count(value: number): string {
  return whole.format(value);
}

/** "1 alert", "2 alerts". */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export const capital = (text: string) => text.replace(/^./, (letter) => letter.toUpperCase());

/** A duration in its two largest units, from milliseconds. */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** How long ago, roughly. */
export function ago(time: number, now: number): string {
  const seconds = Math.max(0, Math.floor((now - time) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** How the user wants temperatures and times; the default is the browser's. */
export interface Display {
  unit: "°C" | "°F";
  /** A time zone by its IANA name; empty for the browser's. */
  zone: string;
}

let display: Display = { unit: "°C", zone: "" };
let formats = new Map<string, Intl.DateTimeFormat>();

export function setDisplay(wanted: Display): void {
  display = wanted;
  formats = new Map();
}

const fahrenheit = (unit: string) => display.unit === "°F" && unit.startsWith("°C");

/** The unit in which values of a unit are shown. */
export function unitName(unit: string): string {
  return fahrenheit(unit) ? unit.replace("°C", "°F") : unit;
}

/** A value as it is shown. Differences and rates have no zero to move. */
export function inUnit(value: number, unit: string, difference = unit !== "°C"): number {
  return fahrenheit(unit) ? value * 1.8 + (difference ? 0 : 32) : value;
}

/** The value of one that was typed as it is shown. */
export function fromUnit(shown: number, unit: string, difference = unit !== "°C"): number {
  return fahrenheit(unit) ? Number(((shown - (difference ? 0 : 32)) / 1.8).toFixed(4)) : shown;
}

/** "23.4 °C". */
export function withUnit(value: number | null | undefined, unit = "°C", difference?: boolean): string {
  return value === null || value === undefined ? none : `${decimal(inUnit(value, unit, difference))} ${unitName(unit)}`;
}

/** The values that a node measures, in one text. */
export function both({ temperature, humidity }: Record<"temperature" | "humidity", number | null>): string {
  const texts = [temperature === null ? "" : withUnit(temperature), humidity === null ? "" : `${decimal(humidity)} %`];
  return texts.filter(Boolean).join(", ");
}

/** A text of the service, which has its temperatures in degrees Celsius, and rounded: exact are some of them as they
 * are shown beside it. One that rose or fell or stays within, and one above, below, warmer or colder than another are
 * differences. */
export function inWords(text: string, exact: readonly (number | null)[] = []): string {
  return display.unit === "°C"
    ? text
    : text.replace(
      /(rose |fell |within )?(-?\d+(?:\.(\d+))?) ?°C(\/\w+)?( above| below| warmer| colder| hotter)?/g,
      (_, moved = "", value: string, { length } = "", per = "", beside = "") => {
        const [told, unit, difference] = [Number(value), `°C${per}`, moved + per + beside !== ""];
        const near = (one: number | null) => one !== null && !difference && Math.abs(one - told) * 10 ** length < 0.51;
        const shown = inUnit(exact.find(near) ?? told, unit, difference);
        return `${moved}${decimal(shown, digits(length || 1))} ${unitName(unit)}${beside}`;
      });
}

/** The time zone in which times are shown. */
export function shownZone(): string {
  return display.zone || Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** Whether clocks show a time twice: by an hour, or by half of one, they are set back. */
export const comesTwice = (time: number, show: (time: number) => string) =>
  [-2, -1, 1, 2].some((by) => show(time + by * 1_800_000) === show(time));

/** A time in the zone that the user wants, on the clock of the browser's language: 24 hours or 12. Of the hour that
 * comes twice when clocks are set back it says which. Months are the calendar's of inputs and reports. */
export function timeIn(time: number, options: Intl.DateTimeFormatOptions): string {
  const key = JSON.stringify(options);
  const format = formats.get(key)
    ?? new Intl.DateTimeFormat(undefined, { timeZone: shownZone(), calendar: "gregory", ...options });
  formats.set(key, format);
  const shown = format.format(time);
  const twice = options.hour && !options.timeZoneName && comesTwice(time, format.format);
  return twice ? timeIn(time, { ...options, timeZoneName: "short" }) : shown;
}

/** A day, with its year unless that is this one. */
export function dayIn(time: number, options: Intl.DateTimeFormatOptions = {}): string {
  const year = { year: "numeric" } as const;
  return timeIn(time, {
    ...(timeIn(time, year) === timeIn(Date.now(), year) ? {} : year), month: "short", day: "numeric", ...options,
  });
}

const clock = { hour: "2-digit", minute: "2-digit" } as const;

export const localTime = (time: number) => dayIn(time, { ...clock, second: "2-digit" });

/** Hours and minutes. */
export const timeOfDay = (time: number) => timeIn(time, clock);

/** Hours and minutes, and the day unless it is that of another time. */
export const timeNear = (time: number, now: number) =>
  dayIn(time) === dayIn(now) ? timeOfDay(time) : dayIn(time, clock);

/** The same time in UTC, shown on hover. */
export function utcTime(time: number): string {
  return `${new Date(time).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** By how much a value has changed: "▲ 0.4 °C", with an arrow that says the same as the sign. */
export function changeOf(change: number | null): string | null {
  if (change === null) return null;
  const size = Math.abs(inUnit(change, "°C", true));
  const arrow = size < 0.05 ? "▬" : change > 0 ? "▲" : "▼";
  return `${arrow} ${decimal(size)} ${unitName("°C")}`;
}
