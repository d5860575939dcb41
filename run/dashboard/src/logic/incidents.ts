// Incidents in the order and the words in which a user sees them.
import type { components } from "../api/schema";
import { duration, inWords, none, plural, timeIn, withUnit } from "./format";
import { byName } from "./names";
import { quantities, type Quantity } from "./rules";

export type Incident = components["schemas"]["Incident"];

export const kinds: Record<Incident["kind"], string> = { threshold: "Limits", silence: "Silence", anomaly: "Anomalies", forecast: "Forecasts" };

export const causes: Record<Incident["cause"], string> = {
  too_hot: "Too hot", too_cold: "Too cold", too_humid: "Too humid", too_dry: "Too dry", silent: "Silent", sensor: "Sensor at fault", unusual: "Unusual",
};

/** Where it is: a room, all of a gateway that is silent, or a node that is in no room. */
export function placeOf({ room_name, gateway_name, worst }: Incident): string {
  return room_name ?? (gateway_name === null ? `${worst.sensor_name ?? worst.sensor_id}, not placed` : `Gateway ${gateway_name}`);
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    groups.get(key)?.push(item) ?? groups.set(key, [item]);
  }
  return groups;
}

/** Whether somebody must still look: it is neither acknowledged nor expected by a maintenance window. */
export function waits(incident: Incident): boolean {
  return !incident.acknowledged && !incident.silenced;
}

/** Larger is seen first: what waits before what somebody has, what lasts before what is over, critical before warning. */
export function urgency(incident: Incident): number {
  return (waits(incident) ? 4 : 0) + (incident.state === "lasting" ? 2 : 0) + (incident.severity === "critical" ? 1 : 0);
}

/** How far it is beyond its limit, now or, when it is over, at its peak. */
function beyond({ direction, limit, peak, state, value_now }: Incident): number {
  const value = state === "lasting" ? (value_now ?? peak) : peak;
  return value === null || limit === null ? 0 : direction === "below" ? limit - value : value - limit;
}

/** In a group what lasts comes first, whoever has it: the group is over when all of it is. */
function worstFirst(a: Incident, b: Incident): number {
  return Number(b.state === "lasting") - Number(a.state === "lasting") || Number(b.severity === "critical") - Number(a.severity === "critical")
    || (a.quantity === b.quantity ? beyond(b) - beyond(a) : 0) || Number(waits(b)) - Number(waits(a)) || Date.parse(b.start_time) - Date.parse(a.start_time);
}

/** What is wrong, without what its own columns say: "Temperature above 27.0 °C". */
export function wrong(incident: Incident): string {
  const quantity = incident.quantity && quantities[incident.quantity as Quantity];
  if (!quantity || incident.kind !== "threshold") return inWords(incident.reason);
  return `${quantity.name} ${incident.direction} ${withUnit(incident.limit, quantity.unit)}`;
}

/** A value of an incident with its unit. */
export function valueOf(incident: Incident, value: number | null): string {
  const unit = incident.quantity && quantities[incident.quantity as Quantity]?.unit;
  return unit ? withUnit(value, unit) : none;
}

/** In how many hours there is one of this probability, to two digits. */
export const oneIn = (probability: number) => Number((1 / probability).toPrecision(2));

/** Whom it is about: a sensor, a node that is none yet, or all of a gateway that is silent. */
export function nameOf({ members, sensor_name, sensor_id }: Incident): string {
  return members.length > 0 ? `${plural(members.length, "sensor")} of one gateway` : (sensor_name ?? sensor_id);
}

/** When it began: a silence with the newest reading. */
const beginOf = ({ kind, start_time, last_time }: Incident) => (kind === "silence" ? last_time : start_time);

/** When one incident, or all of a group, began and ended. */
export function stretchOf([first, ...others]: readonly [Incident, ...Incident[]]): { begin: string; end: string | null } {
  return others.reduce((all, incident) => ({
    begin: Date.parse(beginOf(incident)) < Date.parse(all.begin) ? beginOf(incident) : all.begin,
    end: all.end === null || incident.end_time === null ? null : Date.parse(incident.end_time) > Date.parse(all.end) ? incident.end_time : all.end,
  }), { begin: beginOf(first), end: first.end_time });
}

/** How long it lasts, or has lasted: whole minutes once it is one. */
export function lasting({ begin, end }: ReturnType<typeof stretchOf>, now: number): string {
  const milliseconds = (end === null ? now : Date.parse(end)) - Date.parse(begin);
  return duration(milliseconds < 60_000 ? milliseconds : Math.floor(milliseconds / 60_000) * 60_000);
}

/** One incident, or several of one room and kind that overlap and are shown as one. */
export interface Entry {
  id: string;
  /** Worst first. */
  members: [Incident, ...Incident[]];
}

/** Incidents under one heading. */
export interface Section {
  key: string;
  title: string;
  entries: Entry[];
}

const kindTitles: Record<Incident["kind"], string> = {
  threshold: "Beyond their limits", silence: "Silent", anomaly: "Unlike the others", forecast: "Will pass a limit",
};

/** What a group of several incidents is about. */
export function groupTitle({ members: [first, ...others] }: Entry): string {
  const sensors = new Set([first, ...others].map((incident) => incident.sensor_id)).size;
  const same = others.every((incident) => wrong(incident) === wrong(first));
  const what = same && first.kind === "threshold" ? wrong(first) : kindTitles[first.kind];
  return `${what}: ${sensors === 1 ? nameOf(first) : plural(sensors, "sensor")}`;
}

function entriesOf(incidents: readonly Incident[]): Entry[] {
  return [...groupBy(incidents, ({ group_id }) => group_id)].flatMap(([id, found]) => {
    const [first, ...others] = found.toSorted(worstFirst);
    return first ? [{ id, members: [first, ...others] }] : [];
  });
}

function roomOf({ members }: Entry): { key: string; name: string } {
  const rooms = new Set(members.flatMap((incident) => [incident, ...incident.members]).map(({ room_id }) => room_id));
  if (rooms.size > 1) return { key: "several", name: "Several rooms" };
  const [first] = members;
  return first.room_id === null ? { key: "none", name: "In no room yet" } : { key: String(first.room_id), name: first.room_name ?? `Room ${first.room_id}` };
}

/** Open incidents by room: the room with the worst first, then by name. */
export function byRoom(incidents: readonly Incident[]): Section[] {
  const worstOf = ({ members }: Entry) => Math.max(...members.map(urgency));
  const entries = entriesOf(incidents).toSorted((a, b) => worstOf(b) - worstOf(a) || worstFirst(a.members[0], b.members[0]));
  const rooms = [...groupBy(entries, (entry) => roomOf(entry).key)].flatMap(([key, members]) => {
    const [worst] = members;
    return worst ? [{ key, name: roomOf(worst).name, title: roomOf(worst).name, entries: members, worst: worstOf(worst) }] : [];
  });
  return byName(rooms).toSorted((a, b) => b.worst - a.worst).map(({ key, title, entries: found }) => ({ key, title, entries: found }));
}

/** Past incidents by the day on which they began, newest first; none is folded into another. */
export function byDay(incidents: readonly Incident[]): Section[] {
  return [...groupBy(incidents, ({ start_time }) => timeIn(Date.parse(start_time), { weekday: "short", day: "numeric", month: "short", year: "numeric" }))]
    .map(([title, found]) => ({ key: title, title, entries: found.map((incident): Entry => ({ id: incident.id, members: [incident] })) }));
}

/** How many incidents a person counts: those of a group are one. */
export function groups(incidents: readonly Pick<Incident, "group_id">[]): number {
  return new Set(incidents.map(({ group_id }) => group_id)).size;
}

/** The pages of a list in one: an incident on the border of two comes once. */
export function joined(pages: readonly (readonly Incident[])[]): Incident[] {
  return [...new Map(pages.flat().map((incident) => [incident.id, incident])).values()];
}

/** A stretch of a chart, in seconds since the epoch: an incident or, with a band, what was ordinary in an anomaly. */
export interface Span {
  start: number;
  end: number;
  low?: number;
  high?: number;
}

const drawn = { temperature: ["temperature", "temperature_rate"], humidity: ["humidity"], dew_point: ["dew_point"] };
export type Charted = keyof typeof drawn;

/** When a chart's quantity was beyond a limit, or unlike what it was before. What is only expected is no span. */
export function spansOf(incidents: readonly Incident[], chart: Charted): Span[] {
  return incidents
    .filter(({ kind, quantity }) => kind !== "forecast" && quantity !== null && drawn[chart].includes(quantity))
    .map(({ start_time, last_time, band_low, band_high }) => ({
      start: Date.parse(start_time) / 1000, end: Date.parse(last_time) / 1000, ...(band_low !== null && band_high !== null && { low: band_low, high: band_high }),
    }));
}

/** When a limit will be passed, at the earliest and at the latest: seconds since the epoch. */
export interface Passing {
  limit: number;
  earliest: number;
  latest: number;
}

export function passingOf(incidents: readonly Incident[], chart: Charted): Passing | undefined {
  const found = incidents.find(({ kind, state, quantity, limit, earliest, latest }) =>
    kind === "forecast" && state === "lasting" && quantity !== null && drawn[chart].includes(quantity) && limit !== null && earliest !== null && latest !== null);
  return found && { limit: found.limit ?? 0, earliest: Date.parse(found.earliest ?? "") / 1000, latest: Date.parse(found.latest ?? "") / 1000 };
}
