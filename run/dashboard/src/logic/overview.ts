// What the overview says: one sentence that is true, which room is worst, and the
// colour of each sensor.
import type { components } from "../api/schema";
import { recommended } from "./climate";
import { count, duration, plural, timeNear } from "./format";
import { measuredOf } from "./excursions";
import { nowOf, titleOf } from "./incidents";
import { named } from "./names";

type Schemas = components["schemas"];
/** past: what of the past that `make run` begins with has arrived, in the system's words. */
export type Overview = Schemas["Overview"] & { past?: string | null };
export type LiveSensor = Schemas["LiveSensor"];
export type State = LiveSensor["state"];
type Limit = Schemas["LiveLimit"];

export const stateNames: Record<State, string> = {
  critical: "Critical", silent: "Silent", warning: "Warning", late: "On its way",
  unreported: "No reading yet", ok: "Within limits",
};

/** The limits that apply to a sensor. */
export function limitsOf(overview: Overview, sensor: LiveSensor): readonly Limit[] {
  return overview.limits[sensor.limits] ?? [];
}

/** Whether a value is strictly beyond one of the limits, as detection compares. */
export function beyond(limits: readonly Limit[], quantity: Limit["quantity"], value: number | null): boolean {
  return value !== null && limits.some((limit) =>
    limit.quantity === quantity && (limit.direction === "above" ? value > limit.limit : value < limit.limit));
}

/**
 * Where a temperature lies between the limits of its sensor: -4 and 4 are beyond a
 * critical limit, -2 and 2 beyond a warning or, where there is none, beyond the
 * recommended range. 0 is the middle.
 */
export function stepOf(temperature: number, limits: readonly Limit[]): number {
  const { hottest, coldest, warm, cool } = edgesOf(limits);
  if (temperature > hottest) return 4;
  if (temperature < coldest) return -4;
  // Between a warning and the critical limit the colour goes on; without one it does within 10 °C.
  const outside = (by: number, room: number) => (by < Math.min(room, 20) / 2 ? 2 : 3);
  if (temperature > warm) return outside(temperature - warm, hottest - warm);
  if (temperature < cool) return -outside(cool - temperature, cool - coldest);
  const half = (warm - cool) / 2;
  const middle = cool + half;
  return Math.abs(temperature - middle) <= 0.75 * half ? 0 : temperature > middle ? 1 : -1;
}

interface Edges { hottest: number; coldest: number; warm: number; cool: number }

/** By list of limits: thousands of sensors share a few. */
const known = new WeakMap<readonly Limit[], Edges>();

function edgesOf(limits: readonly Limit[]): Edges {
  const before = known.get(limits);
  if (before) return before;
  const edge = (direction: Limit["direction"], severity: Limit["severity"]) => {
    const found = limits.filter((limit) =>
      limit.quantity === "temperature" && limit.direction === direction && limit.severity === severity)
      .map(({ limit }) => limit);
    return found.length === 0 ? undefined : direction === "above" ? Math.min(...found) : Math.max(...found);
  };
  const { low: coolest, high: warmest } = recommended.temperature;
  const hottest = edge("above", "critical") ?? Infinity;
  const coldest = edge("below", "critical") ?? -Infinity;
  const edges = {
    hottest, coldest, warm: Math.min(edge("above", "warning") ?? warmest, hottest),
    cool: Math.max(edge("below", "warning") ?? coolest, coldest),
  };
  known.set(limits, edges);
  return edges;
}

export interface RoomView {
  id: number;
  name: string;
  /** The worst state of its sensors. */
  state: State;
  /** In the order of the overview. */
  sensors: LiveSensor[];
  /** Of those that report: lowest and highest temperature, or null. */
  range: [low: number, high: number] | null;
  /** The service's: the highest temperature, and its change over 15 minutes, in °C. */
  highest: number | null;
  change: number | null;
}

/** Rooms in the service's order. Sensors come by name from the worker. */
export function roomsOf(overview: Overview): RoomView[] {
  const rooms = overview.rooms.map(({ id, name, state, max_temperature: highest, change_15m: change }): RoomView =>
    ({ id, name, state, sensors: [], range: null, highest, change }));
  const byID = new Map(rooms.map((room) => [room.id, room]));
  for (const sensor of overview.sensors) {
    const room = byID.get(sensor.room_id);
    if (!room) continue;
    room.sensors.push(sensor);
    const { reports, temperature } = sensor;
    if (temperature === null || !reports) continue;
    const [low, high] = room.range ?? [temperature, temperature];
    room.range = [Math.min(low, temperature), Math.max(high, temperature)];
  }
  return rooms;
}

/** Whether something of the room is wrong. */
export const inTrouble = ({ state }: Pick<RoomView, "state">) =>
  state === "critical" || state === "silent" || state === "warning";

/**
 * The service's answer to "is everything all right?", in words; past: of a time when there was contact. Its
 * middle changes with each reading: a screen reader announces what stands around it, not each value.
 */
export function sentenceOf(
  { time, sentence, counts, incident_counts, probe, incidents, past: arriving }: Overview, past = false,
): [said?: string, values?: string, who?: string] {
  const { room, sensor, value, since, taken_by: taken, others, outside, quantity } = sentence;
  const heard = `${count(counts.reporting)} of ${plural(counts.sensors, "sensor")} reporting.`;
  switch (sentence.says) {
    case "incident": {
      const incident = incidents.find(({ id }) => id === sentence.incident_id);
      if (!incident) return [];
      const at = Date.parse(time);
      const parts = [...nowOf(incident, at), since !== null && `since ${timeNear(Date.parse(since), at)}`]
        .filter(Boolean).join(", ");
      return [`${titleOf(incident)}: `, `${parts}. `, `${taken === null ? "Nobody" : named(taken)} has it.`
        + (others > 0 ? ` ${plural(others, "other incident")}.` : "")];
    }
    case "service_late":
      return arriving ? ["", arriving] : [
        "", `The service is ${duration(Math.floor(probe.lateness_s / 60) * 60_000 || probe.lateness_s * 1000)} late. `,
        "Readings are on their way; no sensor is to blame."];
    case "no_sensor_reports":
      return ["No sensor reports."];
    case "maintenance":
      return [(incident_counts.silenced > 0
        ? `${plural(incident_counts.silenced, "incident")} in maintenance, and no other. `
        : `${plural(counts.silent, "sensor")} silent in maintenance. `) + heard];
    case "outside_recommended":
      return [`No limit is broken, but ${plural(outside, "sensor")} ${outside === 1 ? "is" : "are"} outside the `
        + `recommended range: `, `${[room ?? "", sensor ?? ""].filter(Boolean).map(named).join(", ")} has `
        + `${measuredOf({ quantity }, value)}. ${heard}`];
    case "nothing_wrong":
      return [`Nothing ${past ? "was" : "is"} wrong. ${heard}`];
  }
}

/** The specification's words for how old the newest reading of a sensor is. */
export function contactOf(timestamp: string, now: number): "Online" | "Late" | "Offline" {
  const age = now - Date.parse(timestamp);
  return age < 60_000 ? "Online" : age > 300_000 ? "Offline" : "Late";
}
