// The report of a month: its bounds, its rows, and the file of them.
import type { components } from "../api/schema";
import { decimal } from "./format";
import { inputValue, instantOf } from "./maintenance";
import type { Excursion } from "./excursions";
import { placeOf, type Incident } from "./incidents";

export type ReportedSensor = components["schemas"]["ReportedSensor"];

/** A room with what its sensors report, and the minutes in which any of them was outside. */
export interface ReportedRoom {
  id: number;
  name: string;
  sensors: readonly ReportedSensor[];
  time: components["schemas"]["RoomTime"] | undefined;
}

/** Rooms that were outside the recommended range the longest first. */
export const worstFirst = (rooms: readonly ReportedRoom[]) =>
  rooms.toSorted((a, b) => (b.time?.minutes_outside_recommended ?? 0) - (a.time?.minutes_outside_recommended ?? 0));

/** A share, rounded down: only the whole is 100 %. */
export const percent = (part: number, whole: number) =>
  (whole === 0 ? "–" : `${decimal(Math.floor((1000 * part) / whole) / 10)} %`);

/** A month ("2026-03") on the clocks of a zone: milliseconds. */
export function monthBounds(month: string, zone: string): [start: number, end: number] {
  const [year = 0, number = 1] = month.split("-").map(Number);
  return [instantOf(Date.UTC(year, number - 1, 1), zone), instantOf(Date.UTC(year, number, 1), zone)];
}

/** The newest months on the clocks of a zone, this one first. */
export function months(now: number, count: number, zone: string): string[] {
  const [year = 0, month = 1] = inputValue(now, zone).split("-").map(Number);
  return Array.from({ length: count }, (_, i) => new Date(Date.UTC(year, month - 1 - i, 1)).toISOString().slice(0, 7));
}

/** A field of a CSV file. What a spreadsheet would take for a formula is text. */
function field(value: string | number | null): string {
  const text = typeof value === "number" ? String(Number(value.toFixed(2))) : (value ?? "");
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const table = (rows: readonly (readonly (string | number | null)[])[]) =>
  rows.map((row) => row.map(field).join(",")).join("\r\n");

/** Who had it, and whether nobody did at its end. */
export const holderOf = ({ taken_by, had_by }: Incident) => taken_by ?? (had_by && `${had_by}, then nobody`);

/** Four tables with an empty line between two: rooms, sensors, incidents, silences. Times are UTC, temperatures °C. */
export function reportCSV(rooms: readonly ReportedRoom[], incidents: readonly Incident[],
  silences: readonly Excursion[]): string {
  return [
    table([
      ["room", "minutes", "minutes_reported", "minutes_outside_recommended", "minutes_outside_allowable"],
      ...rooms.flatMap(({ name, time }) =>
        (time ? [
          [name, time.minutes, time.minutes_reported, time.minutes_outside_recommended, time.minutes_outside_allowable],
        ]
          : [])),
    ]),
    table([
      ["room", "sensor_id", "name", "minutes_reported", "minutes_outside_recommended", "minutes_outside_allowable",
        "min_temperature", "max_temperature"],
      ...rooms.flatMap((room) => room.sensors.map((s) => [
        room.name, s.sensor_id, s.name, s.minutes_reported, s.minutes_outside_recommended, s.minutes_outside_allowable,
        s.min_temperature, s.max_temperature,
      ])),
    ]),
    table([
      ["room", "cause", "severity", "start_time", "end_time", "worst_sensor_id", "worst_sensor", "worst", "peak",
        "taken_by", "taken_at", "comment"],
      ...incidents.map((i) => [
        placeOf(i), i.cause, i.severity, i.start_time, i.end_time, i.worst.sensor_id, i.worst.sensor_name,
        i.worst.reason, i.worst.peak, holderOf(i), i.taken_at, i.comment,
      ]),
    ]),
    table([
      ["room", "sensor_id", "sensor", "start_time", "end_time", "delivered_late"],
      ...silences.map((s) => [s.room_name, s.sensor_id, s.sensor_name, s.start_time, s.end_time, String(s.late)]),
    ]),
  ].join("\r\n\r\n") + "\r\n";
}
