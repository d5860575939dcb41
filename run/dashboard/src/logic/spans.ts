// What else is known of excursions, and the stretches of a chart that they are.
import { endings, valueOf, type Excursion } from "./excursions";
import { count, localTime, plural, timeOfDay } from "./format";
import type { Incident } from "./incidents";
import type { LiveSensor } from "./overview";
import type { Columns } from "./series";

/** In how many hours there is one of this probability, to two digits. */
export const oneIn = (probability: number) => Number((1 / probability).toPrecision(2));

/** What else is known of it. */
export function factsOf(excursion: Excursion): string[] {
  const { kind, state, last_time, late, resolution, reopened, band_low: low, band_high: high, probability,
    earliest, latest } = excursion;
  return [
    earliest !== null && latest !== null
      && `passes it ${timeOfDay(Date.parse(earliest))} to ${timeOfDay(Date.parse(latest))}`,
    low !== null && high !== null && `usual: ${valueOf(excursion, low)} to ${valueOf(excursion, high)}`,
    probability !== null
      && `one hour in ${probability < 1e-6 ? "more than a million" : count(oneIn(probability))} when nothing is wrong`,
    kind === "silence" && state === "lasting" && `newest reading ${localTime(Date.parse(last_time))}`,
    late && (kind === "silence" ? "delivered late" : "reported late"),
    reopened > 0 && `came back ${plural(reopened, "time")}`,
    resolution !== null && endings[resolution] && `ended: ${endings[resolution]}`,
  ].filter((fact): fact is string => Boolean(fact));
}

/** The first incident that a sensor has a part in, in the service's order: by its excursions, or as the worst of it. */
export const incidentOf = (id: string, excursions: readonly Excursion[], incidents: readonly Incident[]) =>
  incidents.find((incident) => incident.worst.sensor_id === id
    || excursions.some(({ incident_id, state }) => incident_id === incident.id && state === "lasting"));

/** Another one when a sensor's excursions may be others. An incident of no room is of a gateway's nodes: it may come
 * after the state. */
export const partOf = ({ state, room_id: room }: LiveSensor, incidents: readonly Incident[]) =>
  JSON.stringify([state, incidents.filter(({ room_id }) => room_id === null || room_id === room)
    .map(({ id, excursions }) => [id, excursions])]);

/** A stretch of a chart, in seconds since the epoch: an excursion or, with a band, what was ordinary in an anomaly. */
export interface Span {
  start: number;
  end: number;
  low?: number;
  high?: number;
}

const drawn = { temperature: ["temperature", "temperature_rate"], humidity: ["humidity"], dew_point: ["dew_point"] };
export type Charted = keyof typeof drawn;

/** When a chart's quantity was beyond a limit, or unlike what it was before. What is only expected is no span. */
export function spansOf(excursions: readonly Excursion[], chart: Charted): Span[] {
  return excursions
    .filter(({ kind, quantity }) => kind !== "forecast" && quantity !== null && drawn[chart].includes(quantity))
    .map(({ start_time, last_time, band_low, band_high }) => ({
      start: Date.parse(start_time) / 1000, end: Date.parse(last_time) / 1000,
      ...(band_low !== null && band_high !== null && { low: band_low, high: band_high }),
    }));
}

/** What is expected of a curve: from its last value to a limit, at the earliest and at the latest, in seconds. */
export interface Fan { time: number; value: number; limit: number; earliest: number; latest: number }

/** The first forecast that lasts, from the curve of its own sensor. One whose limit the curve has passed is none. */
export function fanOf(excursions: readonly Excursion[], chart: Charted,
  curveOf: (sensorID: string) => Columns | undefined): Fan | undefined {
  for (const { kind, state, sensor_id, quantity, direction, limit, earliest, latest } of excursions) {
    const curve = kind === "forecast" && state === "lasting" && quantity === chart ? curveOf(sensor_id) : undefined;
    const [time, value] = [curve?.time.at(-1), curve?.mean.at(-1)];
    if (time === undefined || value == null || limit === null || earliest === null || latest === null) continue;
    if (direction === "above" ? value < limit : value > limit) {
      return { time, value, limit, earliest: Date.parse(earliest) / 1000, latest: Date.parse(latest) / 1000 };
    }
  }
  return undefined;
}
