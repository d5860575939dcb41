// Incidents in the words in which a user sees them. Their order, counts and state are the service's.
import type { components } from "../api/schema";
import { endings, measuredOf, valueOf } from "./excursions";
import { dayIn, decimal, duration, inUnit, plural, timeNear, timeOfDay, unitName } from "./format";
import { named } from "./names";
import { quantities, type Quantity } from "./rules";

export type Incident = components["schemas"]["Incident"];
export type IncidentDetail = components["schemas"]["IncidentDetail"];

export const causes: Record<Incident["cause"], string> = {
  too_hot: "Too hot", too_cold: "Too cold", too_humid: "Too humid", too_dry: "Too dry", silent: "Silent",
  sensor: "Sensor at fault", unusual: "Unusual",
};

/** What is so of its place. */
const sayings: Record<Incident["cause"], string> = {
  too_hot: "too hot", too_cold: "too cold", too_humid: "too humid", too_dry: "too dry", silent: "silent",
  sensor: "has a sensor at fault", unusual: "has unusual readings",
};

/** What is wrong, as one says it of a place: "is too hot", "will be too hot", "was silent". */
export function saying({ cause, phase, breaking }: Pick<Incident, "cause" | "phase" | "breaking">): string {
  if (cause === "sensor" || cause === "unusual") return breaking ? sayings[cause]
    : sayings[cause].replace("has", "had");
  const expected = phase === "expected";
  return `${breaking ? (expected ? "will be" : "is") : expected ? "was expected to be" : "was"} ${sayings[cause]}`;
}

/** Where it is: a room, all of a gateway that is silent, or a node in no room. Of a drill it says that first. */
export function placeOf({ room_name, gateway_id, gateway_name, worst, drill }: Incident): string {
  const gateway = gateway_name ?? gateway_id;
  return (drill ? "Drill: " : "") + (room_name ? named(room_name) : gateway ? `Gateway ${named(gateway)}`
    : `${named(worst.sensor_name ?? worst.sensor_id)}, not placed`);
}

/** How many of a place's sensors are silent, where others are heard: "2 of 3 sensors". */
const silentOf = ({ cause, now, room_id }: Incident) => (cause === "silent" && room_id && now && now.heard > 0
  && `${now.sensors} of ${plural(now.sensors + now.heard, "sensor")}`);

/** What is wrong where, in one line: "Hall A is too hot", "Hall A: 2 of 3 sensors are silent". */
export function titleOf(incident: Incident): string {
  const silent = incident.breaking && silentOf(incident);
  return silent ? `${placeOf(incident)}: ${silent} ${incident.now?.sensors === 1 ? "is" : "are"} silent`
    : `${placeOf(incident)} ${saying(incident)}`;
}

/** How fast a value changes: "rising 0.6 °C/min". What is not seen in a minute is steady. */
export function rateOf(quantity: string | null, rate: number | null): string | null {
  const unit = quantity && quantities[(quantity === "temperature_rate" ? "temperature" : quantity) as Quantity]?.unit;
  if (!unit || rate === null) return null;
  const size = Math.abs(inUnit(rate, unit, true));
  if (size < 0.05) return "steady";
  return `${rate > 0 ? "rising" : "falling"} ${decimal(size)} ${unitName(unit)}/min`;
}

/** Why nothing breaks any more: the values are back, or nothing judges them. */
export const endingOf = ({ breaking, resolution }: Pick<Incident, "breaking" | "resolution">) =>
  !breaking && (resolution && endings[resolution] ? `not cleared: ${endings[resolution]}` : "cleared");

/** How an incident is now, in parts: its value, where that goes, and how many sensors it is about. */
export function nowOf(incident: Incident, at: number): string[] {
  const { now, worst, cause } = incident;
  if (!now) return [];
  const rate = rateOf(worst.quantity, now.rate);
  const ending = endingOf(incident);
  return [
    ending,
    now.value !== null && `${now.silent ? "last " : ""}${measuredOf(worst, now.value)} at `
      + named(worst.sensor_name ?? worst.sensor_id),
    now.silent && now.value_at !== null && `no reading since ${timeNear(Date.parse(now.value_at), at)}`,
    // No limit that is not in force.
    worst.limit !== null && (!ending || ending === "cleared") && (now.within ? "back within the " : "")
      + `limit ${(now.value === null ? measuredOf : valueOf)(worst, worst.limit)}`,
    // What is expected is seen before the rate of ten minutes tells of it.
    (rate !== "steady" || incident.phase !== "expected") && rate,
    now.next_limit !== null && now.earliest !== null && now.latest !== null
      // Beside a limit that is broken, another is the next.
      && (worst.limit === null || worst.limit === now.next_limit ? `passes ${valueOf(worst, now.next_limit)} `
        : `next limit ${valueOf(worst, now.next_limit)} expected `)
        + `${timeOfDay(Date.parse(now.earliest))} to ${timeOfDay(Date.parse(now.latest))}`,
    incident.breaking && (cause === "silent" ? silentOf(incident) || plural(now.sensors, "sensor")
      : now.heard > 0 && `${now.sensors} of ${plural(Math.max(now.heard, now.sensors), "sensor")}`),
    now.standing > 0 && `standing: ${now.standing}`,
  ].filter((part): part is string => Boolean(part));
}

/** How long it has lasted, or did: whole minutes once it is one. */
export function lasting({ start_time, end_time }: Pick<Incident, "start_time" | "end_time">, now: number): string {
  const milliseconds = (end_time === null ? now : Date.parse(end_time)) - Date.parse(start_time);
  return duration(milliseconds < 60_000 ? milliseconds : Math.floor(milliseconds / 60_000) * 60_000);
}

/** Incidents under one heading. */
export interface Section {
  key: string;
  title: string;
  incidents: Incident[];
}

/** Past incidents by the day on which they began, as the service has ordered them. */
export function byDay(incidents: readonly Incident[]): Section[] {
  const days = new Map<string, Incident[]>();
  for (const incident of incidents) {
    const day = dayIn(Date.parse(incident.start_time), { weekday: "short" });
    days.get(day)?.push(incident) ?? days.set(day, [incident]);
  }
  return [...days].map(([title, found]) => ({ key: title, title, incidents: found }));
}
