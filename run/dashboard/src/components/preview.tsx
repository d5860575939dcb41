// What rules would have told in the past, before they are switched on.
import { useMutation } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { useSensorNames } from "../api/queries";
import { count, plural } from "../logic/format";
import { found, type RuleChange } from "../logic/rules";
import { Action } from "./action";
import { Failure } from "./states";

const periods = [7, 30] as const;

/** Replaces is the rule that is changed. */
export function RulePreview({ rules, replaces }: { rules: RuleChange[]; replaces?: number }) {
  const [days, setDays] = useState<number>(7);
  const nameOf = useSensorNames();
  const preview = useMutation({
    mutationFn: (asked: { rules: RuleChange[]; days: number }) =>
      unwrap(api.POST("/api/v1/rules/preview", { body: { ...asked, replaces } })),
  });
  // What was counted for other rules says nothing about these.
  const counted = JSON.stringify(preview.variables?.rules) === JSON.stringify(rules) ? preview.data : undefined;
  const most = Math.max(...(counted?.rooms ?? []).flatMap((room) => room.days).map(({ incidents }) => incidents), 1);
  return (
    <section class="preview" aria-label="Preview">
      <div class="actions">
        <Action waits={preview.isPending && "Incidents are being counted."}
          onClick={() => preview.mutate({ rules, days })}>
          {preview.isPending ? "Counting…" : "Preview incidents"}
        </Action>
        <div class="segments small" role="group" aria-label="Days of the preview">
          {periods.map((period) => (
            <button key={period} type="button" aria-pressed={days === period}
              onClick={() => { setDays(period); preview.reset(); }}>{plural(period, "day")}</button>
          ))}
        </div>
      </div>
      <div aria-live="polite">
        {preview.error && <Failure error={preview.error} retry={() => preview.mutate({ rules, days })} />}
        {counted && <p><strong>{found(counted)} in the last {plural(days, "day")}.</strong></p>}
      </div>
      {counted?.rooms.map((room) => (
        <section key={room.room_id} aria-label={room.room_name}>
          <p><strong>{room.room_name}</strong>: {found(room)}</p>
          <ol class="bars" aria-label="Incidents by day">
            {room.days.map((day) => (
              <li key={day.date} title={`${day.date}: ${found(day)}`}>
                <span class="bar" style={{ height: `${(day.incidents / most) * 100}%` }} />
                <span class="unseen">{day.date}: {found(day)}</span>
              </li>
            ))}
          </ol>
          <p class="hint">
            Excursions: {room.sensors.slice(0, 3)
              .map(({ sensor_id, excursions }) => `${nameOf(sensor_id)} ${count(excursions)}`).join(" · ")}
            {room.sensors.length > 3 && ` · ${plural(room.sensors.length - 3, "other sensor")}`}
          </p>
        </section>
      ))}
    </section>
  );
}
