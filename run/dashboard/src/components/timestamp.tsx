import { localTime, utcTime } from "../logic/format";

/** A time in the browser's zone, with UTC on hover. */
export function Timestamp({ at }: { at: string | number }) {
  const time = typeof at === "number" ? at : Date.parse(at);
  return <time dateTime={new Date(time).toISOString()} title={utcTime(time)}>{localTime(time)}</time>;
}
