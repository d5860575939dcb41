// The control for the range of time that charts show: a period that ends now, or any other.
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { downloadReadings } from "../api/download";
import { serviceTime } from "../api/time";
import { shownZone } from "../logic/format";
import { clocksChange, inputTime, inputValue } from "../logic/maintenance";
import { lengths, zoomedOut, type Period, type Range } from "../logic/range";
import { Action } from "./action";
import { Field } from "./form";

export function RangeBar(props: {
  sensorID: string; range: Range; start: number; end: number; onChange: (range: Range) => void;
}) {
  const { range, start, end, onChange } = props;
  const [from, setFrom] = useState("");
  const [to, setTo] = useState("");
  useEffect(() => {
    setFrom(inputValue(start, shownZone()));
    setTo(inputValue(end, shownZone()));
  }, [range.period, range.period === undefined && start, range.period === undefined && end]);
  const [a, b] = [inputTime(from, shownZone()), inputTime(to, shownZone())];
  const show = (event: Event) => {
    event.preventDefault();
    if (a >= b) return (event.currentTarget as HTMLFormElement).querySelector<HTMLElement>("[name=to]")?.focus();
    onChange({ start: a, end: b });
    document.getElementById("custom-range")?.hidePopover();
  };
  return (
    <div class="range">
      <div class="segments" role="group" aria-label="Period">
        {(Object.keys(lengths) as Period[]).map((period) => (
          <button key={period} type="button" aria-pressed={range.period === period}
            onClick={() => onChange({ period })}>{period}</button>
        ))}
      </div>
      <button type="button" onClick={() => onChange(zoomedOut(start, end, serviceTime()))}>Zoom out</button>
      <button type="button" {...{ popovertarget: "custom-range" }}>Custom</button>
      <form id="custom-range" class="menu" popover="auto" onSubmit={show}>
        <Field label="From" name="from" type="datetime-local" value={from} onInput={setFrom}
          hint={clocksChange(from, shownZone())} />
        <Field label="To" name="to" type="datetime-local" value={to} onInput={setTo}
          hint={clocksChange(to, shownZone())} error={a >= b ? "Choose a time after From." : null} />
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
    return downloadReadings(sensorID, start, end).catch(setError).finally(() => setBusy(false));
  };
  return (
    <>
      <Action waits={busy && "One moment…"} onClick={run}>{busy ? "Downloading…" : "Download CSV"}</Action>
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
    </>
  );
}
