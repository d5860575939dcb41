// Where learning cannot judge, or only in part: of all sensors.
import { plural } from "../logic/format";
import type { Overview } from "../logic/overview";

/** How many sensors that report are not judged fully; what arrives of the past is judged by its own time. */
export function NotAllJudged({ sensors, past }: Overview) {
  const reporting = sensors.filter(({ reports }) => reports);
  const inPart = reporting.filter(({ judged_by }) => judged_by === "live_state").length;
  const not = reporting.filter(({ judged_by }) => judged_by === "learning" || judged_by === "nothing").length;
  const said = [not > 0 && `${plural(not, "sensor")} not judged for anomalies yet`, inPart > 0
    && `${plural(inPart, "sensor")} judged for anomalies in part`].filter(Boolean).join(", ");
  return past || said === "" ? null : <p class="hint">{said}: their own pages say why.</p>;
}
