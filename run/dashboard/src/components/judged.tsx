// Where learning cannot judge, or only in part.
import { plural, timeOfDay } from "../logic/format";
import type { LiveSensor, Overview } from "../logic/overview";

/** Why learning does not judge a sensor fully; nothing where it does. */
export function JudgedInPart({ sensor }: { sensor: LiveSensor }) {
  const since = sensor.learning_since;
  switch (sensor.judged_by) {
    case "window": return null;
    case "live_state": return <p class="hint">
      Judged for anomalies in part: its gateway, of another maker, sends no earlier readings along. Steps and noise are
      not seen.
    </p>;
    case "learning": return <p class="hint">Not judged for anomalies yet: learning{since !== null
      && ` since ${timeOfDay(Date.parse(since))}`}. It takes two hours of readings.</p>;
    default: return <p class="hint">Not judged for anomalies: learning has not seen a reading of it yet.</p>;
  }
}

/** How many sensors that report are not judged fully; what arrives of the past is judged by its own time. */
export function NotAllJudged({ sensors, past }: Overview) {
  const reporting = sensors.filter(({ reports }) => reports);
  const inPart = reporting.filter(({ judged_by }) => judged_by === "live_state").length;
  const not = reporting.filter(({ judged_by }) => judged_by === "learning" || judged_by === "nothing").length;
  const said = [not > 0 && `${plural(not, "sensor")} not judged for anomalies yet`, inPart > 0
    && `${plural(inPart, "sensor")} judged for anomalies in part`].filter(Boolean).join(", ");
  return past || said === "" ? null : <p class="hint">{said}: their own pages say why.</p>;
}
