// What else is known of excursions, and the stretches of a chart that they are.
import { endings, valueOf, type Excursion } from "./excursions";
import { count, localTime, plural, timeOfDay } from "./format";

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

/** When a limit will be passed, at the earliest and at the latest: seconds since the epoch. */
export interface Passing {
  limit: number;
  earliest: number;
  latest: number;
}

export function passingOf(excursions: readonly Excursion[], chart: Charted): Passing | undefined {
  const found = excursions.find(({ kind, state, quantity, limit, earliest, latest }) =>
    kind === "forecast" && state === "lasting" && quantity !== null && drawn[chart].includes(quantity) && limit !== null
      && earliest !== null && latest !== null);
  return found && { limit: found.limit ?? 0, earliest: Date.parse(found.earliest ?? "") / 1000,
    latest: Date.parse(found.latest ?? "") / 1000 };
}
