// The training runs, how good their models were, and a button to start one.
import { useQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { api, unwrap, messageOf, type TrainingRun } from "../api/client";
import { keys, pollSlowly, refresh } from "../api/queries";
import { count, inUnit, unitName } from "../logic/format";
import { Action } from "./action";
import { May } from "./may";
import { Timestamp } from "./timestamp";
import { Failure, Loading, StatusMark } from "./states";

const degrees = (rmse: number | null | undefined) => (rmse == null ? rmse : inUnit(rmse, "°C", true));

const metrics = [
  { name: "F1 of anomalies", better: "higher is better", of: (run: TrainingRun) => run.metrics?.anomaly?.f1_score },
  { name: "Accuracy of anomalies", better: "higher is better",
    of: (run: TrainingRun) => run.metrics?.anomaly?.accuracy },
  { name: "RMSE of temperature", better: "lower is better",
    of: (run: TrainingRun) => degrees(run.metrics?.forecasting?.rmse_temp) },
  { name: "MAE of humidity, %", better: "lower is better",
    of: (run: TrainingRun) => run.metrics?.forecasting?.mae_humidity },
];

const figure = (value: number | null | undefined) => (value === null || value === undefined ? "–" : value.toFixed(2));

export function TrainingRuns() {
  const { data, error, refetch } = useQuery({
    queryKey: keys.runs,
    queryFn: () => unwrap(api.GET("/api/v1/ml/retraining/history", { params: { query: { limit: 50 } } })),
    // A run takes 3 to 5 seconds.
    refetchInterval: (query) => (query.state.data?.some((run) => run.status === "running") ? 2000 : pollSlowly()),
  });
  const [refused, setRefused] = useState<unknown>(null);
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  if (!data) return <Loading what="training runs" />;
  const running = data.some((run) => run.status === "running");
  const start = async () => {
    setRefused(null);
    await unwrap(api.POST("/api/v1/ml/retraining/trigger")).catch(setRefused);
    await refresh(keys.runs);
  };
  return (
    <section class="card" aria-labelledby="runs">
      <div class="heading">
        <h2 id="runs">Training runs</h2>
        <May role="admin">
          <Action waits={running && "A training run is under way."} onClick={start}>
            {running ? "Retraining…" : "Retrain now"}
          </Action>
        </May>
      </div>
      {refused !== null && <p class="error" role="alert">{messageOf(refused)}</p>}
      {data.length === 0 ? <p class="hint">
        No run yet. Start the first by hand when 500 readings are in; later ones start by themselves with every 100
        verdicts.
      </p>
        : (
        <>
          <div class="trends">{metrics.map((metric) => <Trend key={metric.name} {...metric} runs={data} />)}</div>
          <div class="scroll" tabIndex={0} role="group" aria-label="Training runs">
            <table>
              <thead>
                <tr><th scope="col">Started</th><th scope="col">Status</th><th scope="col">By</th><th
                  scope="col"
                >Rows</th><th scope="col">Verdicts</th><th scope="col">F1</th><th
                  scope="col"
                >Accuracy</th><th scope="col">RMSE {unitName("°C")}</th><th scope="col">MAE %</th></tr>
              </thead>
              <tbody>{data.map((run) => <Run key={run.id} run={run} />)}</tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
}

function Run({ run }: { run: TrainingRun }) {
  const kind = run.status === "completed" ? "ok" : run.status === "failed" ? "alert" : "late";
  return (
    <tr>
      <td><Timestamp at={run.started_at} /></td>
      <td class={`status ${run.status}`}>
        <StatusMark kind={kind} /> {run.status}{run.error_message && <><br /><small>{run.error_message}</small></>}
      </td>
      <td>{run.triggered_by === "manual" ? "hand" : "100 verdicts"}</td>
      <td>{run.training_data_count === null ? "–" : count(run.training_data_count)}</td>
      <td>{run.validated_data_count === null ? "–" : count(run.validated_data_count)}</td>
      {metrics.map((metric) => <td key={metric.name}>{figure(metric.of(run))}</td>)}
    </tr>
  );
}

const width = 160;
const height = 44;

/** A sparkline of one metric over the runs, oldest first, with the last value as text. */
function Trend({ name, better, of, runs }: (typeof metrics)[number] & { runs: TrainingRun[] }) {
  const values = runs.map(of).filter((value) => value !== null && value !== undefined).reverse();
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const at = (value: number, i: number) => ({
    x: values.length === 1 ? width / 2 : 4 + (i / (values.length - 1)) * (width - 8),
    y: height - 5 - ((value - low) / range) * (height - 10),
  });
  const points = values.map(at);
  return (
    <figure class="trend">
      <figcaption>{name}<small>{better}</small></figcaption>
      <p class="big">{figure(values.at(-1))}</p>
      <svg viewBox={`0 0 ${width} ${height}`} role="img"
        aria-label={`${name} of ${values.length} runs, last ${figure(values.at(-1))}`}>
        <polyline points={points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ")} />
        {points.map(({ x, y }, i) => <circle key={i} cx={x} cy={y} r="2.5" />)}
      </svg>
    </figure>
  );
}
