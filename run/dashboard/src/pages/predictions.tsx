// Where people teach the models: was the prediction right?
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, got, reason, type Prediction } from "../api/client";
import { keys, useHistory, usePredictions, usePredictionStats, useThresholds } from "../api/queries";
import { count, decimal } from "../logic/format";
import { columnsOf } from "../logic/series";
import { Charts } from "../parts/chunk";
import { Moment } from "../parts/moment";
import { Empty, Failure, Loading, Mark } from "../parts/states";
import { useTitle } from "../parts/title";
import { TrainingRuns } from "../parts/training";

const perRetraining = 100;
/** The longest list that the service gives. */
const listLimit = 500;

export default function PredictionsPage() {
  useTitle("Predictions");
  return (
    <>
      <h1>Predictions</h1>
      <Progress />
      <Queue />
      <TrainingRuns />
    </>
  );
}

/** What is left to the next retraining. */
function Progress() {
  const stats = usePredictionStats();
  const validated = usePredictions("validated", listLimit);
  if (stats.error) return <Failure error={stats.error} retry={() => void stats.refetch()} />;
  if (!stats.data || !validated.data) return <Loading what="progress" />;
  const unused = validated.data.filter((prediction) => !prediction.used_in_training).length;
  return (
    <section class="card" aria-labelledby="progress">
      <h2 id="progress">To the next retraining</h2>
      <label class="progress">
        <span><strong class="big">{Math.min(unused, perRetraining)}</strong> of {perRetraining} of your verdicts wait for training</span>
        <progress max={perRetraining} value={Math.min(unused, perRetraining)} />
      </label>
      <p class="hint">
        {stats.data.ready_for_retraining ? "Enough verdicts are there: the models retrain now. " : "The verdicts of all customers count together. "}
        In all: {count(stats.data.total_predictions)} predictions, {count(stats.data.ok_count)} judged right, {count(stats.data.not_ok_count)} wrong.
      </p>
    </section>
  );
}

function Queue() {
  const queue = usePredictions("unvalidated", 50);
  const queries = useQueryClient();
  // Judged or skipped here, and so not to be shown again though the list is older.
  const [passed, setPassed] = useState<ReadonlySet<number>>(new Set());
  const [error, setError] = useState<unknown>(null);
  const left = (queue.data ?? []).filter((prediction) => !passed.has(prediction.id));
  const current = left[0];

  const judge = async (feedback: "ok" | "not_ok" | null) => {
    if (!current) return;
    setError(null);
    setPassed((before) => new Set(before).add(current.id));
    if (!feedback) return;
    try {
      await got(api.PUT("/api/v1/prediction-feedback/{id}", { params: { path: { id: current.id } }, body: { feedback } }));
    } catch (refused) {
      setPassed((before) => new Set([...before].filter((id) => id !== current.id)));
      setError(refused);
    }
    await queries.invalidateQueries({ queryKey: keys.predictions });
  };

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || document.querySelector("dialog[open]") || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
      if (event.key === "o") void judge("ok");
      else if (event.key === "n") void judge("not_ok");
      else if (event.key === "s") void judge(null);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });

  if (queue.error) return <Failure error={queue.error} retry={() => void queue.refetch()} />;
  if (!queue.data) return <Loading what="predictions" />;
  return (
    <section class="card" aria-labelledby="queue">
      <h2 id="queue">To validate</h2>
      {error !== null && <p class="fault" role="alert">{reason(error)}</p>}
      {current ? (
        <>
          <PredictionView key={current.id} prediction={current} />
          <div class="actions verdicts">
            <button type="button" class="primary" onClick={() => void judge("ok")}>Right <kbd>o</kbd></button>
            <button type="button" onClick={() => void judge("not_ok")}>Wrong <kbd>n</kbd></button>
            <button type="button" class="quiet" onClick={() => void judge(null)}>Skip <kbd>s</kbd></button>
            <span class="hint" aria-live="polite">{left.length} left{queue.data.length === 50 ? " of the newest 50" : ""}</span>
          </div>
        </>
      ) : passed.size > 0 && queue.data.length > 0 ? (
        <p>
          You have seen all that wait. <button type="button" class="link" onClick={() => setPassed(new Set())}>Show the skipped ones again</button>
        </p>
      ) : (
        <Empty title="Nothing to validate"><p>Predictions appear here as readings come in, once there are models: the first are trained below.</p></Empty>
      )}
    </section>
  );
}

const before = 45 * 60_000;
const after = 15 * 60_000;

function PredictionView({ prediction }: { prediction: Prediction }) {
  const at = Date.parse(prediction.timestamp);
  const start = at - before;
  const end = at + after;
  const context = useHistory(prediction.sensor_id, start, end, 240);
  const { data: limits } = useThresholds();
  const columns = useMemo(() => ({
    temperature: columnsOf(context.data ?? [], "temperature", (end - start) / 240_000),
    humidity: columnsOf(context.data ?? [], "humidity", (end - start) / 240_000),
  }), [context.data, start, end]);
  const shared = { start: start / 1000, end: end / 1000, marked: at / 1000 };
  return (
    <>
      <p>
        <span class={`badge ${prediction.anomaly_predicted ? "alert" : "online"}`}>
          <Mark kind={prediction.anomaly_predicted ? "alert" : "ok"} />{prediction.anomaly_predicted ? "Judged an anomaly" : "Judged normal"}
        </span>{" "}
        <Link href={`/sensors/${encodeURIComponent(prediction.sensor_id)}`}>{prediction.sensor_id}</Link>, <Moment at={at} />
      </p>
      <div class="scroll" tabIndex={0} role="group" aria-label="Forecast against actual">
        <table>
          <thead><tr><th scope="col">&nbsp;</th><th scope="col">Forecast</th><th scope="col">Actual</th><th scope="col">Off by</th></tr></thead>
          <tbody>
            <Compared name="Temperature" unit="°C" forecast={prediction.predicted_temp} actual={prediction.actual_temp} />
            <Compared name="Humidity" unit="%" forecast={prediction.predicted_humidity} actual={prediction.actual_humidity} />
          </tbody>
        </table>
      </div>
      {context.error && <Failure error={context.error} retry={() => void context.refetch()} />}
      {context.data && context.data.length > 0 && (
        <Charts>{(Chart) => (
          <div class="pair">
            <Chart {...shared} label="Temperature" unit="°C" colour="--temperature" columns={columns.temperature} limit={limits?.max_temperature} />
            <Chart {...shared} label="Humidity" unit="%" colour="--humidity" columns={columns.humidity} limit={limits?.max_humidity} />
          </div>
        )}</Charts>
      )}
    </>
  );
}

function Compared({ name, unit, forecast, actual }: { name: string; unit: string; forecast: number | null; actual: number | null }) {
  const off = forecast === null || actual === null ? null : actual - forecast;
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{forecast === null ? "none" : `${decimal(forecast)} ${unit}`}</td>
      <td>{decimal(actual)} {unit}</td>
      <td>{off === null ? "–" : `${off > 0 ? "+" : ""}${decimal(off)} ${unit}`}</td>
    </tr>
  );
}
