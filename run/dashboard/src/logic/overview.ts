// What the overview says: one sentence that is true, which room is worst, and the
// colour of each sensor.
import type { components } from "../api/schema";
import { dewPoint, recommended } from "./climate";
import { capital, count, decimal, duration, inWords, plural, withUnit } from "./format";
import { groups } from "./incidents";
import type { Columns } from "./series";

type Schemas = components["schemas"];
export type Overview = Schemas["Overview"];
export type LiveSensor = Schemas["LiveSensor"];
export type State = LiveSensor["state"];
export type OpenIncident = Overview["incidents"][number];
type Limit = Schemas["LiveLimit"];

/** Worst first. */
const order: State[] = ["critical", "silent", "warning", "late", "unreported", "ok"];

export const stateNames: Record<State, string> = {
  critical: "Critical", silent: "Silent", warning: "Warning", late: "Not here yet", unreported: "No reading yet", ok: "Within limits",
};

/** The limits that apply to a sensor. */
export function limitsOf(overview: Overview, sensor: LiveSensor): readonly Limit[] {
  return overview.limits[sensor.limits] ?? [];
}

/** Whether a value is strictly beyond one of the limits, as detection compares. */
export function beyond(limits: readonly Limit[], quantity: Limit["quantity"], value: number | null): boolean {
  return value !== null && limits.some((limit) => limit.quantity === quantity && (limit.direction === "above" ? value > limit.limit : value < limit.limit));
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
    const found = limits.filter((limit) => limit.quantity === "temperature" && limit.direction === direction && limit.severity === severity).map(({ limit }) => limit);
    return found.length === 0 ? undefined : direction === "above" ? Math.min(...found) : Math.max(...found);
  };
  const { low: coolest, high: warmest } = recommended.temperature;
  const hottest = edge("above", "critical") ?? Infinity;
  const coldest = edge("below", "critical") ?? -Infinity;
  const edges = {
    hottest, coldest, warm: Math.min(edge("above", "warning") ?? warmest, hottest), cool: Math.max(edge("below", "warning") ?? coolest, coldest),
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
}

/** Rooms in the service's order. Sensors come by name from the worker. */
export function roomsOf(overview: Overview): RoomView[] {
  const rooms = overview.rooms.map(({ id, name }): RoomView => ({ id, name, state: "ok", sensors: [], range: null }));
  const byID = new Map(rooms.map((room) => [room.id, room]));
  for (const sensor of overview.sensors) {
    const room = byID.get(sensor.room_id);
    if (!room) continue;
    room.sensors.push(sensor);
    const { state, temperature } = sensor;
    if (order.indexOf(state) < order.indexOf(room.state)) room.state = state;
    if (temperature === null || state === "silent" || state === "late") continue;
    const [low, high] = room.range ?? [temperature, temperature];
    room.range = [Math.min(low, temperature), Math.max(high, temperature)];
  }
  return rooms;
}

/** The rooms that a wall shows in turn: those in trouble, or else all with a sensor. */
export function rotation(rooms: readonly RoomView[]): RoomView[] {
  const inTrouble = rooms.filter(({ state }) => state === "critical" || state === "silent" || state === "warning");
  return inTrouble.length > 0 ? inTrouble : rooms.filter(({ sensors }) => sensors.length > 0);
}

/** How grave the sentence is. */
export type Tone = "quiet" | "note" | "warning" | "critical";

export interface Verdict {
  tone: Tone;
  text: string;
  /** The incident that it is about, with its sensor. */
  sensorID?: string;
}

/** The answer to "is everything all right?", and nothing that is not so. */
export function verdict(overview: Overview): Verdict {
  const { probe } = overview;
  const lasting = overview.incidents.filter(({ silenced }) => !silenced);
  const expected = groups(overview.incidents) - groups(lasting);
  if (lasting.length > 0) return wrongNow(overview, lasting, expected);
  if (probe.late) {
    const late = duration(Math.floor(probe.lateness_s / 60) * 60_000 || probe.lateness_s * 1000);
    return { tone: "note", text: `The service is ${late} late. Readings are on their way; no sensor is to blame.` };
  }
  return nothingWrong(overview, expected);
}

function wrongNow(overview: Overview, lasting: readonly OpenIncident[], expected: number): Verdict {
  const open = lasting.filter(({ acknowledged }) => !acknowledged);
  const heat = new Map(overview.sensors.map(({ id, temperature }) => [id, temperature ?? 0]));
  const worst = lasting.reduce((a, b) => ((Number(a.acknowledged) - Number(b.acknowledged) || Number(b.severity === "critical") - Number(a.severity === "critical")
    || (heat.get(b.sensor_id) ?? 0) - (heat.get(a.sensor_id) ?? 0)) > 0 ? b : a));
  const place = placeOf(overview, worst.room_id, worst.sensor_name ?? worst.sensor_id);
  const reason = inWords(worst.reason);
  const handled = open.length > 0 ? "" : lasting.length === 1 ? ", acknowledged" : ", all acknowledged";
  const number = groups(lasting) === 1 ? plural(lasting.length, "sensor") : plural(groups(lasting), "incident");
  const text = lasting.length === 1
    ? `${place}: ${reason}${handled}`
    : `${number}${handled}, worst${open.length > 0 && open.length < lasting.length ? " that nobody has" : ""}: ${place}. ${capital(reason)}`;
  return {
    tone: open.length === 0 ? "note" : worst.severity, sensorID: worst.sensor_id,
    text: expected > 0 ? `${text}. ${count(expected)} more in maintenance` : text,
  };
}

/** What is said when no incident lasts but those that maintenance expects. */
function nothingWrong(overview: Overview, expected: number): Verdict {
  const { counts, to_be_seen: unseen } = overview;
  const reporting = overview.sensors.filter(({ state }) => state === "ok" || state === "warning" || state === "critical");
  const outside = reporting.filter((sensor) => !isRecommended(sensor));
  const rest = [
    expected > 0 && `${plural(expected, "incident")} in maintenance.`,
    counts.silent > 0 && `${plural(counts.silent, "sensor")} ${counts.silent === 1 ? "is" : "are"} silent in maintenance.`,
    counts.unreported > 0 && `${plural(counts.unreported, "sensor")} ${counts.unreported === 1 ? "waits for its" : "wait for their"} first reading.`,
    unseen > 0 && `${plural(unseen, "incident")} to be seen ${unseen === 1 ? "is" : "are"} over.`,
  ];
  const say = (...parts: (string | false)[]) => [...parts, ...rest].filter(Boolean).join(" ");
  const heard = `${count(reporting.length)} of ${count(counts.sensors)} reporting.`;
  if (reporting.length === 0) return { tone: "note", text: say("No sensor reports.") };
  if (outside.length === 0) return { tone: unseen > 0 ? "note" : "quiet", text: say(`All within the recommended range, ${heard}`) };
  const warmest = outside.reduce((a, b) => ((b.temperature ?? 0) > (a.temperature ?? 0) ? b : a));
  const found = `${plural(outside.length, "sensor")} ${outside.length === 1 ? "is" : "are"} outside the recommended range`;
  return {
    tone: "note", sensorID: warmest.id,
    text: say(
      `${expected > 0 ? found : `No limit is broken, but ${found}`}:`,
      `${placeOf(overview, warmest.room_id, warmest.name)} has ${withUnit(warmest.temperature)}, ${decimal(warmest.humidity)} %.`, heard,
    ),
  };
}

function placeOf(overview: Overview, roomID: number | null, sensor: string): string {
  const room = overview.rooms.find(({ id }) => id === roomID)?.name;
  return room === undefined ? sensor : `${room}, ${sensor}`;
}

/** Within the recommended envelope for clean air. */
function isRecommended({ temperature, humidity }: LiveSensor): boolean {
  if (temperature === null || humidity === null) return true;
  const dew = dewPoint(temperature, humidity) ?? -Infinity;
  const { temperature: range, dewPoint: moisture } = recommended;
  return temperature >= range.low && temperature <= range.high && dew >= moisture.low && dew <= moisture.high && humidity <= recommended.humidity.high;
}

const halfHour = 1800;

/** A sparkline's text as the columns of a chart: the first in tenths of a degree, each other as its difference. */
export function sparkColumns(sparkline: string, start: string): Columns {
  const first = Date.parse(start) / 1000;
  const columns: Columns = { time: [], mean: [], low: [], high: [] };
  let tenths = 0;
  for (const [i, part] of (sparkline === "" ? [] : sparkline.split(",")).entries()) {
    if (part !== "") tenths += Number(part);
    columns.time.push(first + (i + 0.5) * halfHour);
    columns.mean.push(part === "" ? null : tenths / 10);
  }
  return columns;
}

/** The first half hour of the day in which a sensor was heard; null where there is none. */
export function learningSince(sensor: LiveSensor, overview: Overview): number | null {
  const { time, mean } = sparkColumns(sensor.sparkline, overview.sparkline_start);
  const first = time[mean.findIndex((value) => value !== null)];
  return first === undefined ? null : (first - 900) * 1000;
}
