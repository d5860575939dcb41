// What rules would have told in the past, before they are switched on.
import { useMutation } from "@tanstack/react-query";
import { useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { useSensorNames } from "../api/queries";
import { serviceTime } from "../api/time";
import { count, plural } from "../logic/format";
import { summarize, type RuleChange } from "../logic/rules";
import { Action } from "./action";
import { Failure } from "./states";

const periods = [7, 30] as const;

export function RulePreview({ rules }: { rules: RuleChange[] }) {
  const [days, setDays] = useState<number>(7);
  const nameOf = useSensorNames();
  const preview = useMutation({
    mutationFn: async (asked: { rules: RuleChange[]; days: number }) =>
      summarize(await unwrap(api.POST("/api/v1/rules/preview", { body: asked })), asked.days, serviceTime()),
  });
  // What was counted for other rules says nothing about these.
  const counted = JSON.stringify(preview.variables?.rules) === JSON.stringify(rules) ? preview.data : undefined;
  const most = Math.max(...(counted?.days ?? []).map(({ incidents }) => incidents), 1);
  return (
    <section class="preview" aria-label="Preview">
      <div class="actions">
        <Action waits={preview.isPending && "Incidents are being counted."} onClick={() => preview.mutate({ rules, days })}>
          {preview.isPending ? "Counting…" : "Preview incidents"}
        </Action>
        <div class="segments small" role="group" aria-label="Days of the preview">
          {periods.map((period) => (
            <button key={period} type="button" aria-pressed={days === period} onClick={() => { setDays(period); preview.reset(); }}>{plural(period, "day")}</button>
          ))}
        </div>
      </div>
      <div aria-live="polite">
        {preview.error && <Failure error={preview.error} retry={() => preview.mutate({ rules, days })} />}
        {counted && <p><strong>{counted.sentence}</strong></p>}
      </div>
      {counted && counted.sensors.length > 0 && (
        <>
          <ol class="bars" aria-label="Incidents by day">
            {counted.days.map(({ date, incidents }) => (
              <li key={date} title={`${date}: ${plural(incidents, "incident")}`}>
                <span class="bar" style={{ height: `${(incidents / most) * 100}%` }} /><span class="unseen">{date}: {incidents}</span>
              </li>
            ))}
          </ol>
          <p class="hint">
            {counted.sensors.slice(0, 3).map(({ sensor_id, incidents }) => `${nameOf(sensor_id)} ${count(incidents)}`).join(" · ")}
            {counted.sensors.length > 3 && ` · ${plural(counted.sensors.length - 3, "other sensor")}`}
          </p>
        </>
      )}
    </section>
  );
}
