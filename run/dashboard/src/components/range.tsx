// The control for the range of time that charts show: a period that ends now, or any other.
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { downloadReadings } from "../api/download";

export type Range = { period: "1h" | "24h" | "7d" | "30d" } | { period?: undefined; start: number; end: number };

/** A time in the form that an input of type datetime-local takes. */
function inputValue(time: number): string {
  const local = new Date(time - new Date(time).getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 16);
}

export function RangeBar(props: { sensorID: string; range: Range; start: number; end: number; onChange: (range: Range) => void }) {
  const { range, start, end, onChange } = props;
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  useEffect(() => {
    setFrom(inputValue(start));
    setTo(inputValue(end));
  }, [range]);
  const show = (event: Event) => {
    event.preventDefault();
    const [a, b] = [Date.parse(from), Date.parse(to)];
    if (a < b) onChange({ start: a, end: b });
  };
  return (
    <div class="range">
      <div class="segments" role="group" aria-label="Period">
        {(["1h", "24h", "7d", "30d"] as const).map((period) => (
          <button key={period} type="button" aria-pressed={range.period === period} onClick={() => onChange({ period })}>{period}</button>
        ))}
      </div>
      <form onSubmit={show} class="inline">
        <label>From <input type="datetime-local" value={from} required onInput={(event) => setFrom(event.currentTarget.value)} /></label>
        <label>to <input type="datetime-local" value={to} required min={from} onInput={(event) => setTo(event.currentTarget.value)} /></label>
        <button>Show</button>
      </form>
      <Download {...props} />
    </div>
  );
}

function Download({ sensorID, start, end }: { sensorID: string; start: number; end: number }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const run = () => {
    setBusy(true);
    setError(null);
    downloadReadings(sensorID, start, end).catch(setError).finally(() => setBusy(false));
  };
  return (
    <>
      <button type="button" disabled={busy} onClick={run}>{busy ? "Downloading…" : "Download CSV"}</button>
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
    </>
  );
}
