// Excursions as a table, newest first, with the verdict on what learning found.
import { Link } from "wouter-preact";
import { useExcursions } from "../api/excursions";
import { capital } from "../logic/format";
import { valueOf, wrong, type Excursion } from "../logic/excursions";
import { factsOf } from "../logic/spans";
import { Judgement } from "./judgement";
import { May } from "./may";
import { More } from "./more";
import { Failure, Loading } from "./states";
import { Timestamp } from "./timestamp";

/** Those of an incident name their sensors, those of a sensor their incidents. Followed: of what lasts. */
export function Excursions({ of, followed = false }: {
  of: { incident_id: number } | { sensor_id: string }; followed?: boolean;
}) {
  const { data, error, refetch, ...pages } = useExcursions(of, followed);
  if (!data) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="excursions" />;
  const found = data.pages.flatMap(({ items }) => items);
  // All of an incident, once all are shown.
  const anomalies = "sensor_id" in of || pages.hasNextPage ? [] : found.filter(({ kind }) => kind === "anomaly");
  return (
    <section class="card listed" aria-labelledby="excursions">
      <h2 id="excursions">Excursions</h2>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {anomalies.length > 1 && <May role="operator"><Judgement of={anomalies} /></May>}
      {found.length === 0 ? <p class="hint">None so far.</p> : (
        <div class="scroll" tabIndex={0} role="group" aria-label="Excursions">
          <table class="stacked">
            <thead><tr>
              <th scope="col">What</th><th scope="col">Severity</th><th scope="col">Peak</th><th scope="col">Began</th>
              <th scope="col">Ended</th><th scope="col">{"sensor_id" in of ? "Incident" : "Sensor"}</th>
            </tr></thead>
            <tbody>{found.map((excursion) =>
              <Row key={excursion.id} excursion={excursion} ofSensor={"sensor_id" in of} />)}</tbody>
          </table>
        </div>
      )}
      <More {...pages} />
    </section>
  );
}

function Row({ excursion, ofSensor }: { excursion: Excursion; ofSensor: boolean }) {
  const { kind, severity, state, sensor_id, sensor_name, incident_id, start_time, end_time, peak } = excursion;
  return (
    <tr>
      <td class="wraps">
        {capital(wrong(excursion))}
        {factsOf(excursion).map((fact) => <small key={fact}>{capital(fact)}</small>)}
        {kind === "anomaly" && <May role="operator"><Judgement of={[excursion]} /></May>}
      </td>
      <td class={severity}>{severity}</td>
      <td data-name="Peak">{valueOf(excursion, peak)}</td>
      <td data-name="Began"><Timestamp at={start_time} /></td>
      <td data-name="Ended">{state === "lasting" || end_time === null ? "lasts" : <Timestamp at={end_time} />}</td>
      <td>
        {!ofSensor ? sensor_name === null ? sensor_id
          : <Link href={`/sensors/${encodeURIComponent(sensor_id)}`}>{sensor_name}</Link>
          : incident_id !== null && <Link href={`/incidents/${incident_id}`}>
            Open<span class="unseen"> incident {incident_id}</span>
          </Link>}
      </td>
    </tr>
  );
}
